package confirm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/checker"
	"github.com/lockchaos/lockchaos/history"
	"github.com/lockchaos/lockchaos/simulation/world"
	"github.com/lockchaos/lockchaos/topologies"
)

// A mark is a place in the script: a step begins or ends at that time.
type mark struct {
	at   time.Duration
	step string
	// Of an operation: the mark is its beginning, or its end.
	op  *operation
	end bool
}

func (w *writer) mark(at time.Duration, format string, args ...any) {
	w.marks = append(w.marks, mark{at: at, step: fmt.Sprintf(format, args...)})
}

// write writes the scenario.
func (w *writer) write() ([]byte, error) {
	kept := of(w.ops, func(o *operation) bool { return o.keep })
	if len(kept) == 0 {
		return nil, errors.New("the violation is proved by no operation of a client")
	}
	if err := again(kept); err != nil {
		return nil, err
	}
	if err := w.place(kept); err != nil {
		return nil, err
	}
	for _, o := range kept {
		w.marks = append(w.marks, mark{at: o.from, op: o}, mark{at: o.until, op: o, end: true})
	}
	for _, i := range w.incidents {
		if err := w.fault(i, kept); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(w.marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	var b bytes.Buffer
	w.head(&b, kept)
	for _, step := range append(w.warmUp(), w.steps()...) {
		fmt.Fprintf(&b, "  - {%s}\n", step)
	}
	fmt.Fprintf(&b, "\nexpect: {verdict: %s, violation: %s}\n", checker.Invalid, w.violation.Kind)
	return b.Bytes(), nil
}

// again marks the requests of owners that asked before, and the releases of what was granted
// first. A step gives back that, or what was granted last.
func again(kept []*operation) error {
	asked := map[string]bool{}
	holds := map[string][]*operation{}
	for _, o := range kept {
		mine := holds[o.owner]
		switch {
		case o.op == history.Acquire:
			o.again = asked[o.owner]
			asked[o.owner] = true
			if o.outcome == history.OK {
				holds[o.owner] = append(mine, o)
			}
		case o.op == history.Release && len(mine) > 0:
			switch last := len(mine) - 1; {
			case mine[last].grantsWhat(o):
				holds[o.owner] = mine[:last]
			case mine[0].grantsWhat(o):
				o.oldest = true
				holds[o.owner] = mine[1:]
			default:
				return errors.New("a client gives back neither what it was granted first nor last, which no step of a scenario does")
			}
		}
	}
	return nil
}

// grantsWhat reports whether a release gives back what the operation was granted.
func (o *operation) grantsWhat(release *operation) bool {
	return o.lock == release.lock && o.mode == release.mode && o.permits == release.permits
}

// head writes what the scenario is about.
func (w *writer) head(b *bytes.Buffer, kept []*operation) {
	fmt.Fprintf(b, "name: simulated-%s\n", w.violation.Kind)
	fmt.Fprintf(b, "title: %s\n", strconv.Quote("What a simulated run showed: "+w.violation.Explanation))
	fmt.Fprintf(b, "source: lockchaos simulate, lock %s, topology %s, seed %d\n", w.lock.Name, w.Topology, w.Seed)
	fmt.Fprintf(b, "topology: %s\n", w.Topology)
	var servers []string
	if topologies.ShapeOf(w.Topology).Apart() {
		servers = append(servers, fmt.Sprintf("nodes: %d", cmp.Or(w.Servers, 3)))
	}
	if w.keeps() {
		servers = append(servers, "persistence: always")
	}
	if len(servers) > 0 {
		fmt.Fprintf(b, "servers: {%s}\n", strings.Join(servers, ", "))
	}
	fmt.Fprintf(b, "lock: %s\n", w.lock.Name)
	if w.ReplicaAcks > 0 {
		fmt.Fprintf(b, "replica-acks: %d\n", w.ReplicaAcks)
	}
	if !w.lock.Endless && slices.ContainsFunc(kept, func(o *operation) bool { return o.op == history.Acquire && o.lease == 0 }) {
		watchdog := longLease
		if slices.ContainsFunc(kept, func(o *operation) bool { return o.op == history.Acquire && o.lease == 0 && w.ranOut(o) }) {
			watchdog = w.Watchdog
		}
		fmt.Fprintf(b, "watchdog: %v\n", watchdog)
	}
	if w.lock.Kind == history.KindSemaphore {
		fmt.Fprintf(b, "permits: %d\n", w.capacity)
	}
	if w.Progress > 0 {
		fmt.Fprintf(b, "progress: %v\n", w.Progress)
	}
	zones := map[string]string{}
	for _, o := range kept {
		zones[w.clients[o.client]] = w.zones[o.zone]
	}
	var clients []string
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		clients = append(clients, name+": "+zones[name])
	}
	fmt.Fprintf(b, "clients: {%s}\n\n# The faults of the simulated run:\n", strings.Join(clients, ", "))
	for _, f := range w.Plan {
		fmt.Fprintf(b, "#   %v\n", f)
	}
	fmt.Fprintf(b, "steps:\n")
}

// warmUp has each zone use the lock's scripts once, where a fault waits for one: a server
// that does not know a script is sent it twice.
func (w *writer) warmUp() []string {
	if !slices.ContainsFunc(w.incidents, func(i *incident) bool { return ofMessage(i.Name) }) {
		return nil
	}
	var steps, warm []string
	for _, o := range w.ops {
		zone := w.zones[o.zone]
		if !o.keep || slices.Contains(warm, zone) {
			continue
		}
		warm = append(warm, zone)
		client := w.clients[o.client]
		name := "warm-up"
		if topologies.ShapeOf(w.Topology).Slots { // on the server that has the lock
			name = strconv.Quote("{" + w.lock.KeyOf(o.lock) + "}:warm-up")
		}
		steps = append(steps, fmt.Sprintf("client: %s, acquire: %s%s%s, until: granted", client, name, o.inMode(), w.lease(longLease, o)),
			fmt.Sprintf("client: %s, release: %s", client, name))
	}
	return steps
}

// how is the part of a step that says in which way its lock is asked for.
func (o *operation) how() string {
	how := o.inMode()
	if len(o.and) > 0 {
		how += fmt.Sprintf(", and: [%s]", strings.Join(o.and, ", "))
	}
	if o.again {
		how += ", again: true"
	}
	if o.permits > 1 {
		how += fmt.Sprintf(", permits: %d", o.permits)
	}
	return how
}

// inMode is the part that says whether to read or to write.
func (o *operation) inMode() string {
	if o.mode == history.Read || o.mode == history.Write {
		return ", mode: " + string(o.mode)
	}
	return ""
}

// lease is the part of a step that says it.
func (w *writer) lease(d time.Duration, o *operation) string {
	if w.lock.Endless || o.lease == 0 || d == 0 {
		return ""
	}
	return fmt.Sprintf(", lease: %v", d)
}

// patience is how long a client waits in a script that waited for the lock.
const patience = 20 * time.Second

// atOnce is how long an operation takes that waits for nothing but the network.
const atOnce = 30 * time.Millisecond

// steps are those of the marks, in order.
func (w *writer) steps() []string {
	var steps []string
	busy := map[*operation]bool{}
	add := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	for n, m := range w.marks {
		o := m.op
		if o == nil {
			add("%s", m.step)
			continue
		}
		client := w.clients[o.client]
		next := n+1 < len(w.marks) && w.marks[n+1].op == o
		switch {
		case o.op == history.Access && !m.end && next:
			add("client: %s, access: %s", client, o.lock)
		case o.op == history.Access && !m.end:
			busy[o] = true
			add("client: %s, read: %s", client, o.lock)
		case o.op == history.Access && busy[o]:
			add("client: %s, write: %s", client, o.lock)
		case o.op == history.Access:
		case !m.end && next:
			add("%s, until: %s", w.request(o, false), o.must())
		case !m.end:
			busy[o] = true
			add("%s, background: true", w.request(o, true))
		case busy[o]:
			add("await: %s, until: %s", client, o.must())
		}
	}
	return steps
}

// must is how a request has to end, for the violation to be possible.
func (o *operation) must() string {
	if o.strict {
		return "granted"
	}
	return "ended"
}

// request is the step of a request, without how it goes on. One that goes on while others are
// made is tried once, so that it waits if it must be granted.
func (w *writer) request(o *operation, behind bool) string {
	client := w.clients[o.client]
	switch o.op {
	case history.Acquire:
		step := fmt.Sprintf("client: %s, acquire: %s%s%s", client, o.lock, o.how(), w.lease(w.leaseOf(o), o))
		took := o.until - o.from
		switch {
		case o.until == never || (took > atOnce || behind) && o.strict:
			step += fmt.Sprintf(", wait: %v", patience)
		case took > atOnce:
			step += fmt.Sprintf(", wait: %v", min(took.Round(time.Millisecond), patience))
		}
		return step
	case history.Extend:
		return fmt.Sprintf("client: %s, extend: %s, lease: %v", client, o.lock, cmp.Or(o.lease, longLease))
	default:
		first := ""
		if o.oldest {
			first = ", first: true"
		}
		return fmt.Sprintf("client: %s, release: %s%s", client, o.lock, first)
	}
}

// fault adds the steps of a fault.
func (w *writer) fault(i *incident, kept []*operation) error {
	target := w.target(i.Target)
	if ofMessage(i.Name) {
		w.message(i, target)
		return nil
	}
	heal := func(name string) {
		if i.ended < w.end {
			w.mark(i.ended, "heal: %s", name)
		}
	}
	switch i.Name {
	case world.Stall, world.Cut, world.Pause:
		params := ""
		if i.Stream != "" && i.Stream != world.Both {
			params = fmt.Sprintf(", params: {stream: %s}", i.Stream)
		}
		w.mark(i.began, "inject: %s, target: %q%s", i.Name, target, params)
		heal(i.Name)
	case world.Reset, world.Flush:
		w.mark(i.began, "inject: %s, target: %q", i.Name, target)
	case world.ClockForward, world.ClockBack:
		// Where the simulated step ended a lease by milliseconds too soon, a step that is longer than the leases of the
		// script does so without regard to when its steps are made.
		least := longLease + 10*time.Second
		if w.violation.Kind == checker.Stuck {
			least = leastJump
		}
		w.mark(i.began, "inject: %s, target: %s, params: {by: %q}", i.Name, target, fmt.Sprint(max(least, i.By).Milliseconds()))
		heal(i.Name)
	case world.ClockRate:
		w.mark(i.began, "inject: %s, target: %s, params: {percent: %q}", i.Name, target, fmt.Sprint(i.Percent))
		heal(i.Name)
	case world.Kill:
		w.kill(i, target, kept, heal)
	case world.CrashFailover, world.SplitBrain:
		w.failOver(i, kept, heal)
	case world.KillClient, world.PauseClient:
		for _, client := range w.clientsOf(i.Target, kept) {
			w.mark(i.began, "inject: %s, target: %s", i.Name, client)
			if i.Name == world.PauseClient {
				heal(i.Name)
			}
		}
	default:
		return fmt.Errorf("no fault of real servers is like %s", i.Name)
	}
	return nil
}

// leastJump is the smallest step of a clock that can be injected.
const leastJump = 100 * time.Millisecond

// clientsOf are the clients of a simulated process, in order of name.
func (w *writer) clientsOf(zone string, kept []*operation) []string {
	var all []string
	for _, o := range kept {
		if name := w.clients[o.client]; o.zone == zone && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// message adds the steps of a fault of one command: it is armed before the operation
// that sends it, and what it keeps is let go where the simulated message arrived.
func (w *writer) message(i *incident, target string) {
	armed := i.began
	if i.struck != nil {
		armed = i.struck.from - 1
	}
	name := map[string]string{world.DelayCommand: "hold-command", world.DelayReply: "hold-reply"}[i.Name]
	params := fmt.Sprintf("{command: %q, nth: %q}", i.command, strconv.Itoa(i.nth))
	w.mark(armed, "inject: %s, target: %q, params: %s", cmp.Or(name, i.Name), target, params)
	if name == "" {
		return
	}
	if i.struck != nil {
		w.mark(i.began, "await: %s, target: %q", name, target)
	}
	if at := i.began + i.By; at <= w.end { // when the late message arrived
		w.mark(at, "heal: %s", name)
	}
}

// kill adds the steps of a killed server: a restart, unless something happens while it
// is gone.
func (w *writer) kill(i *incident, target string, kept []*operation, heal func(string)) {
	between := slices.ContainsFunc(kept, func(o *operation) bool {
		return o.from > i.began && o.from < i.ended || o.until > i.began && o.until < i.ended && o.from < i.began && o.op != history.Access
	})
	switch {
	case !i.Keep && w.keeps():
		w.mark(i.began, "inject: restart-empty, target: %s", target)
	case between && i.ended < w.end:
		w.mark(i.began, "inject: kill, target: %s", target)
		heal(world.Kill)
	default:
		w.mark(i.began, "inject: restart, target: %s", target)
	}
}

// failOver adds the steps of a failover. Of a master that is silent to its replicas
// before, or dies at a write, the links of the replicas are cut before that write is made.
func (w *writer) failOver(i *incident, kept []*operation, heal func(string)) {
	atWrite := i.After != nil && i.After.Event == world.Write
	if i.Name == world.CrashFailover && (i.Lag > 0 || atWrite) {
		at := i.began
		for _, o := range kept {
			if o.op != history.Access && o.goesOn(i.began) {
				at = min(at, o.from-1)
			}
		}
		w.mark(at, "inject: cut, target: %q", w.replicaLinks(i.Target))
	}
	if i.Name == world.SplitBrain {
		w.splitBrain(i, kept, heal)
		return
	}
	w.begin(i, i.began+i.Lag)
	w.mark(i.began+i.Lag, "inject: %s%s", i.Name, w.shard(i.Target))
	heal(i.Name)
}

// begin has requests that wait while a server dies, and are granted later, begin once it is
// back: their connections end with the server, and a request ends with its connection.
func (w *writer) begin(i *incident, dies time.Duration) {
	for at, m := range w.marks {
		if o := m.op; o != nil && !m.end && o.strict && o.from < dies && o.until > dies {
			if w.marks[at].at = dies + 1; i.ended < o.until {
				w.marks[at].at = i.ended + 1
			}
		}
	}
}

// splitBrain adds the steps of a split-brain. The zone of the first client that is granted
// the lock then stays with the old master, on which a grant is made once it is cut off from
// its replicas. Simulated clients all turn to the new master when it is promoted, and real
// ones in that zone at the heal.
func (w *writer) splitBrain(i *incident, kept []*operation, heal func(string)) {
	promoted, zone := i.began+i.By, "zone-a"
	for _, o := range kept {
		if o.op == history.Acquire && o.outcome == history.OK && o.until >= i.began {
			zone = w.zones[o.zone]
			break
		}
	}
	for at, m := range w.marks {
		if o := m.op; o != nil && !m.end && o.op == history.Acquire && w.zones[o.zone] == zone && o.from < i.began && o.until >= i.began && o.until <= promoted {
			w.marks[at].at = i.began + 1
		}
	}
	for _, o := range kept {
		if o.op != history.Access && w.zones[o.zone] == zone && o.from > promoted {
			i.ended = min(i.ended, o.from-1)
		}
	}
	w.mark(i.began, "inject: %s, target: %s%s", i.Name, zone, w.shard(i.Target))
	heal(i.Name)
}
