package worker

import (
	"encoding/json"
	"time"

	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/workload"
)

// A fromHarness is a line that the harness writes: exactly one of its fields.
type fromHarness struct {
	Hello  *hello  `json:"hello,omitempty"` // the first line
	Order  *order  `json:"order,omitempty"`
	Answer *answer `json:"answer,omitempty"` // to a resource call
}

// hello says who the worker is.
type hello struct {
	Client string `json:"client"`
	// Base is the instant of offset 0, in nanoseconds of the monotonic clock.
	Base int64 `json:"base"`
	// Setup is for the worker's [Opener].
	Setup json.RawMessage `json:"setup"`
}

// order is something that a client does, one at a time.
type order struct {
	workload.Act

	ID int `json:"id"`
	// Within bounds how long it may take; 0 for no bound.
	Within time.Duration `json:"within,omitempty"`
}

// answer is what a resource answered.
type answer struct {
	Value   int64  `json:"value,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	Error   string `json:"error,omitempty"`
}

// A fromWorker is a line that the worker writes: exactly one of its fields.
type fromWorker struct {
	Ready bool           `json:"ready,omitempty"` // it has its lock
	Event *history.Event `json:"event,omitempty"`
	Want  *resourceCall  `json:"want,omitempty"`
	Done  *done          `json:"done,omitempty"`
	// Failed says why there is no worker.
	Failed string `json:"failed,omitempty"`
}

// resourceCall is a read of a resource, or a write of a change.
type resourceCall struct {
	Resource string           `json:"resource"`
	Change   *workload.Change `json:"change,omitempty"`
	// Present is the token that is shown before a read; nil for a read alone.
	Present *int64 `json:"present,omitempty"`
}

// done is how an order ended.
type done struct {
	ID      int          `json:"id"`
	Outcome history.Type `json:"outcome,omitempty"`
	Error   string       `json:"error,omitempty"` // of a read
	Refused bool         `json:"refused,omitempty"`
	Holding bool         `json:"holding,omitempty"`
	Owner   string       `json:"owner,omitempty"`
}
