package main

import (
	"sync"
	"time"
)

// What has come of calls.
type tally struct {
	mutex    sync.Mutex
	counts   counts
	finished bool
}

// counts since the last time; Open is how many there are now.
type counts struct {
	Answered  int            `json:"answered"`
	Messages  int            `json:"messages"`
	Ended     int            `json:"ended"`
	Open      int            `json:"open"`
	SlowestMs int64          `json:"slowest_ms"`
	Failed    map[string]int `json:"failed"`
}

func newTally() *tally { return &tally{counts: counts{Failed: map[string]int{}}} }

// note counts a call.
func (t *tally) note(took time.Duration, err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.counts.Failed[err.Error()]++
		return
	}
	t.counts.Answered++
	t.counts.SlowestMs = max(t.counts.SlowestMs, took.Milliseconds())
}

// begin counts a long stream, if there are to be any.
func (t *tally) begin() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if !t.finished {
		t.counts.Open++
	}
	return !t.finished
}

func (t *tally) message() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.counts.Messages++
}

func (t *tally) end(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.counts.Open--
	if err != nil {
		t.counts.Failed[err.Error()]++
		return
	}
	t.counts.Ended++
}

func (t *tally) finish() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.finished = true
}

func (t *tally) take() counts {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	taken := t.counts
	t.counts = counts{Open: taken.Open, Failed: map[string]int{}}
	return taken
}
