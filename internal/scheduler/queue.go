package scheduler

import "sync"

// A queue collects what is to be sent to the database together: while one statement is under way
// the rest waits for the next, so that a thousand at once take a few statements and one alone
// waits for nobody.
type queue[T any] struct {
	weigh func(T) int // bytes

	mu    sync.Mutex
	items []T
	wake  chan struct{} // has room for one: something was added
}

func newQueue[T any](weigh func(T) int) *queue[T] {
	return &queue[T]{weigh: weigh, wake: make(chan struct{}, 1)}
}

func (q *queue[T]) add(items ...T) {
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue[T]) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Bounds on one statement: what is in it, and its bytes.
const (
	batchSize  = 2000
	batchBytes = 4 << 20
)

// take takes the oldest, at most batchSize of them and batchBytes, though at least one.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, bytes := 0, 0
	for n < len(q.items) && n < batchSize {
		bytes += q.weigh(q.items[n])
		if n > 0 && bytes > batchBytes {
			break
		}
		n++
	}
	batch := q.items[:n:n]
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	return batch
}
