package scheduler

import "sync"

// A queue collects what is to be sent to the database together: while one statement is under way
// the rest waits for the next, so that a thousand at once take a few statements and one alone
// waits for nobody.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // has room for one: something was added
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

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

// batchSize bounds one statement.
const batchSize = 2000

// take takes the oldest, at most batchSize of them.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.items), batchSize)
	batch := q.items[:n:n]
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	return batch
}
