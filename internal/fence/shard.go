package fence

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// MostShards is how many shards a job may have.
const MostShards = 1024

// A Shard is one of the parts that a job's work is split into by the keys of its rows, the Kth Of so
// many. Both count from 1; the zero value is all of it.
type Shard struct{ K, Of int }

// Whole reports whether it is all of the job's work.
func (s Shard) Whole() bool { return s.Of < 2 }

// Owns reports whether a key's work is this shard's. Every key is one shard's alone.
func (s Shard) Owns(key string) bool { return s.Whole() || ShardOf(key, s.Of) == s.K }

// String is the shard as leases and metrics name it, such as 2of4; empty for the whole.
func (s Shard) String() string {
	if s.Whole() {
		return ""
	}
	return strconv.Itoa(s.K) + "of" + strconv.Itoa(s.Of)
}

// Lease is the name of the shard's lease: the job's, a dot, and which shard it is. A job that is not
// split has one of its own name.
func (s Shard) Lease(job string) string {
	if s.Whole() {
		return job
	}
	return job + "." + s.String()
}

// Kin is what the leases of one job and one count of shards have in common: by it replicas say what they
// can lead.
func (s Shard) Kin(job string) string {
	if s.Whole() {
		return job
	}
	return job + ".of" + strconv.Itoa(s.Of)
}

// Shards are those that a job is split into; of 0 and 1 it is not.
func Shards(of int) []Shard {
	if of < 2 {
		return []Shard{{}}
	}
	all := make([]Shard, of)
	for i := range all {
		all[i] = Shard{i + 1, of}
	}
	return all
}

// ShardOf is which of so many shards a key's work is, from 1: 1 more than the remainder of the first
// four bytes of the key's SHA-256, the most significant first. rota_shard says the same in SQL.
func ShardOf(key string, of int) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:4])%uint32(max(1, of))) + 1
}

// SplitLease takes a lease's name apart. The name of no job has a dot, so that it cannot be mistaken;
// what is not made by Lease, as another program's may be, is the name of a whole.
func SplitLease(name string) (job string, s Shard) {
	job, part, dotted := strings.Cut(name, ".")
	k, of, split := strings.Cut(part, "of")
	if !dotted || !split || job == "" {
		return name, Shard{}
	}
	s.K, _ = strconv.Atoi(k)
	s.Of, _ = strconv.Atoi(of)
	if s.K < 1 || s.K > s.Of || s.Of < 2 || s.Of > MostShards || s.Lease(job) != name {
		return name, Shard{}
	}
	return job, s
}

// CheckShard says why a sharded job cannot write the table; nil: it can.
func (t Table) CheckShard() error {
	switch {
	case t.Shard == "":
		return fmt.Errorf("table %s: name the key column that decides a row's shard in Shard", t.Name)
	case !t.keyed(t.Shard):
		return fmt.Errorf("table %s: its Shard, %s, is no column of its Key: a row would change hands with it", t.Name, t.Shard)
	case t.Large:
		return fmt.Errorf("table %s: it is Large, and a watermark is that of a whole table: the shards of a job write tables that are raised by their rows", t.Name)
	}
	return nil
}

// ownSQL is the condition of the shard's own rows, to be added to others.
func (t Table) ownSQL(s Shard) string {
	if s.Whole() {
		return ""
	}
	return fmt.Sprintf(" AND rota_shard(%s::text, %d) = %d", quoted(t.Shard), s.Of, s.K)
}
