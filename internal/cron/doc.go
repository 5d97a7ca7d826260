// Package cron finds the next instant of a cron schedule after a given one.
//
// A spec has five fields (minute, hour, day of month, month, day of week), or six with the seconds
// first, or is a descriptor: @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly.
// Where both day fields are restricted, a day that matches either one will do. Its zone is UTC, or
// the one it is given by name, never the machine's.
//
// The parser is robfig/cron's, behind a strict check: by itself it panics on some zone prefixes and
// accepts nonsense such as "1,,2" or "+1". A spec that can never match is refused, so that every
// Schedule has a next instant.
//
// What is not promised yet: the walk over the calendar is the library's too, which on the day of a
// change to or from summer time may miss an entry or repeat it.
package cron
