// Package cron finds the next instant of a cron schedule after a given one.
//
// # Specs
//
// A spec has five fields (minute, hour, day of month, month, day of week), or six with the seconds
// first, or is a descriptor: @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly.
// Where both day fields are restricted, a day that matches either one will do; a star with a step,
// such as */10, is a restriction. Sunday is 0, and not 7 as well. Its zone is UTC, or the one it is
// given by name, never the machine's.
//
// The parser is robfig/cron's, behind a strict check: by itself it panics on some zone prefixes and
// accepts nonsense such as "1,,2" or "+1". A spec that no date matches is refused, so that every
// Schedule has a next instant. A step that is longer than its field, as in */90, is accepted, since
// crontabs have it, and Warnings says what it means.
//
// # Summer time
//
// The walk over the calendar is our own: the library's loses whole days in zones whose clock jumps
// at midnight, repeats entries, and for some specs never ends. Ours does as cron does.
//
// An entry with fixed times, whose minute and hour both begin with something else than * or ?, goes
// by the clock on the wall. It is due when that clock first shows its time, so once where the clock
// is set back. If the clock jumps over its time, it is due at the jump, once for all the times of
// the spec that were skipped. A jump of more than three hours is not made up: Samoa had no
// 30 December 2011, and its jobs had no such day.
//
// Any other entry follows elapsed time, as an interval would. It is due whenever the clock shows a
// time that it allows, so again where the clock is set back, and not at all where it jumps.
//
// # Promises
//
// Next is strictly later than what it is given, and is the same on every replica: zones are read
// from data in the binary, never from the machine's files, and names of zones are exact. It takes
// microseconds, because it goes by the zone's changes and the fields' bits, not by steps of time: at
// worst it looks through the months of nine years for each change of the zone in eight.
package cron
