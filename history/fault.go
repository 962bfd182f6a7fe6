package history

// Life says how long a fault acts, on [Inject].
type Life string

// The lives of faults.
const (
	Lasting   Life = "lasting"   // from its injection to its heal
	Momentary Life = "momentary" // over as soon as it has happened
	Triggered Life = "triggered" // from the message that it waits for
	Repeating Life = "repeating" // on and off, until its heal
)

// Effect is one thing that a fault does to its target, on [Inject].
type Effect string

// The effects of faults. A target of "{a b}" is a group of parties; any other is a
// server, or links.
const (
	Isolates    Effect = "isolates"     // parties can't reach each other: a group all others, or as the fault's shape says
	Cuts        Effect = "cuts"         // links refuse connections
	Stalls      Effect = "stalls"       // data on links waits until the heal
	Delays      Effect = "delays"       // data on links arrives late
	Disconnects Effect = "disconnects"  // open connections are closed
	Loses       Effect = "loses"        // a message never arrives
	Stops       Effect = "stops"        // the server answers nothing while the fault lasts
	Suspends    Effect = "suspends"     // with Stops: the server's process stands still, and keeps what it knows
	Restarts    Effect = "restarts"     // the server's process ends and begins again, with what its disk kept
	Forgets     Effect = "forgets"      // the server loses data, whatever its disk keeps
	Refuses     Effect = "refuses"      // the server answers requests with an error
	Withholds   Effect = "withholds"    // the server leaves requests unanswered for a while
	Promotes    Effect = "promotes"     // another server becomes the master
	Moves       Effect = "moves"        // data goes to another server
	ShiftsClock Effect = "shifts-clock" // the server's wall clock is wrong
	StopsClient Effect = "stops-client" // a client stands still, or is gone
)
