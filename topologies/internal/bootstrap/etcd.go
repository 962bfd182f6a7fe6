package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
	"github.com/lockchaos/lockchaos/topologies/internal/probe"
)

// Etcd is etcd from 3.4 on. It is asked over the JSON gateway of its clients' port.
type Etcd struct{}

var _ Consensus = Etcd{}

// How often a leader is heard of, and after how much silence a member asks for an
// election: the defaults of etcd. With less, members of a busy machine elect another leader
// now and then, which begins all leases again. The shortest lease that etcd gives is one
// and a half of the latter, rounded up to a second.
const (
	etcdHeartbeat = 100 * time.Millisecond
	etcdElection  = time.Second
)

// Configure starts a member of a new cluster. With pre-vote, a member that was cut off
// does not depose the leader when it comes back.
func (Etcd) Configure(t topologies.Topology, name string, at map[string]Address) Config {
	var all []string
	for _, member := range t.Servers() {
		all = append(all, member+"=http://"+announcedPeer(at[member]))
	}
	here := at[name]
	return Config{Args: []string{
		"--name", name, "--data-dir", "data", "--logger", "zap",
		"--listen-client-urls", "http://" + here.Listen.String(), "--advertise-client-urls", "http://" + here.Announced.String(),
		"--listen-peer-urls", "http://" + listeningPeer(here), "--initial-advertise-peer-urls", "http://" + announcedPeer(here),
		"--initial-cluster", strings.Join(all, ","), "--initial-cluster-token", "lockchaos", "--initial-cluster-state", "new",
		"--heartbeat-interval", strconv.FormatInt(etcdHeartbeat.Milliseconds(), 10),
		"--election-timeout", strconv.FormatInt(etcdElection.Milliseconds(), 10), "--pre-vote",
	}}
}

func announcedPeer(a Address) string {
	return netip.AddrPortFrom(a.Announced.Addr(), a.AnnouncedBus).String()
}

func listeningPeer(a Address) string {
	return netip.AddrPortFrom(a.Listen.Addr(), a.Bus).String()
}

// Alive asks at the peers' port: that of clients is silent until the member has found a
// leader.
func (Etcd) Alive(ctx context.Context, at Address) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	reply, err := exchange(ctx, listeningPeer(at), "GET "+peerPath+" HTTP/1.0\r\n\r\n")
	if err == nil && !strings.HasPrefix(reply, "HTTP/1.0 200 ") {
		err = fmt.Errorf("it answers %.40q", reply)
	}
	return err
}

// What is asked to see whether something answers: members probe each other so; of a
// client's path that does not exist, the refusal comes without a look at the store.
const (
	peerPath   = "/raft/probing"
	clientPath = "/lockchaos"
)

// Greeting asks for one of those paths.
func (Etcd) Greeting(kind topologies.LinkKind) probe.Greet {
	path := clientPath
	if kind == topologies.Peer {
		path = peerPath
	}
	return probe.Greet{Request: []byte("GET " + path + " HTTP/1.1\r\nHost: etcd\r\n\r\n")}
}

// An etcdAnswer is what a member answers, whatever it is asked. It has the parts that are read of any answer.
type etcdAnswer struct {
	Header struct {
		MemberID string `json:"member_id"`
		Revision string
	}
	ID, TTL, Version, Leader string // the leader is empty for none
	IsLearner, Succeeded     bool
	Members, Leases          []struct{ ID string }
	Kvs                      []etcdPair
	Responses                []struct {
		Range struct{ Kvs []etcdPair } `json:"response_range"`
	}
	Result struct{ TTL string } // of a stream
}

// An etcdPair is a key with its value.
type etcdPair struct{ Key, Value []byte }

func (Etcd) status(ctx context.Context, at Address) (etcdAnswer, error) {
	s, err := call(ctx, direct, at.Listen.String(), "maintenance/status", struct{}{})
	s.Leader = strings.TrimPrefix(s.Leader, "0") // no number begins with that
	return s, err
}

// State asks for the member's status.
func (e Etcd) State(ctx context.Context, at Address) (MemberState, error) {
	s, err := e.status(ctx, at)
	return MemberState{ID: s.Header.MemberID, Leader: s.Leader}, err
}

// Serves writes a key, and leaves nothing of it.
func (Etcd) Serves(ctx context.Context, dial Dialer, announced string) error {
	_, err := call(ctx, dial, announced, "kv/put", etcdKey(proofKey))
	if err == nil {
		_, err = call(ctx, dial, announced, "kv/deleterange", etcdKey(proofKey))
	}
	return err
}

// Empty ends all leases, and deletes all keys.
func (Etcd) Empty(ctx context.Context, at Address) error {
	all, err := call(ctx, direct, at.Listen.String(), "lease/leases", struct{}{})
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, l := range all.Leases {
		if err := (&etcdClaim{members: []Address{at}, lease: l.ID}).Release(ctx); err != nil {
			return err
		}
	}
	every := map[string][]byte{"key": {0}, "range_end": {0}}
	if _, err := call(ctx, direct, at.Listen.String(), "kv/deleterange", every); err != nil {
		return fmt.Errorf("delete all keys: %w", err)
	}
	return nil
}

// Meet asks for the member's status, and for the list of members.
func (e Etcd) Meet(ctx context.Context, at Address) (Introduction, error) {
	here := at.Listen.String()
	status, err := e.status(ctx, at)
	if err != nil {
		return Introduction{}, inWords(err)
	}
	i := Introduction{Member: status.Header.MemberID, Version: status.Version}
	switch {
	case i.Member == "" || i.Version == "":
		return i, errors.New("it is no etcd member")
	case status.IsLearner:
		return i, errors.New("it is a learner, which serves no client")
	case status.Leader == "":
		i.Leaderless = "it knows no leader"
		return i, nil
	}
	if err := NewEnough(topologies.StoreEtcd, here, i.Version); err != nil {
		return i, err
	}
	list, err := call(ctx, direct, here, "cluster/member/list", struct{}{})
	if err != nil {
		return i, inWords(err)
	}
	i.Members = len(list.Members)
	return i, nil
}

// inWords says what the answer of a server that is not ours means.
func inWords(err error) error {
	var answer *answerError
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind), errors.Is(err, io.ErrUnexpectedEOF), strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("it is no etcd member: %w", err)
	case !errors.As(err, &answer):
		return err
	case strings.Contains(answer.body, "HTTP request to an HTTPS server"):
		return errors.New("it wants TLS, which lockchaos does not speak with etcd")
	case strings.Contains(answer.body, "user name is empty"), strings.Contains(answer.body, "permission denied"), strings.Contains(answer.body, "auth token"):
		return errors.New("it wants a user and a password, which lockchaos has none of for etcd")
	case strings.Contains(answer.body, "etcdserver:"):
		return err
	default:
		return fmt.Errorf("it is no etcd member: %w", err)
	}
}

// etcdKey is a key as the JSON gateway has it.
func etcdKey(key string) map[string]any { return map[string]any{"key": []byte(key)} }

// etcdClaim is a key with a lease.
type etcdClaim struct {
	members []Address
	lease   string
	since   string // the revision that made it
}

// anyone asks the members in turns until one has answered.
func (c *etcdClaim) anyone(ctx context.Context, what string, ask any) (etcdAnswer, error) {
	var errs []error
	for _, at := range c.members {
		asked, cancel := context.WithTimeout(ctx, ClientTimeout)
		answer, err := call(asked, direct, at.Listen.String(), what, ask)
		cancel()
		if err == nil || errors.As(err, new(*answerError)) || ctx.Err() != nil {
			return answer, err
		}
		errs = append(errs, err)
	}
	return etcdAnswer{}, errors.Join(errs...)
}

// Claim makes a key that ends with its lease, unless there is one.
func (Etcd) Claim(ctx context.Context, at []Address, owner string, lease time.Duration) (Claim, string, error) {
	c := &etcdClaim{members: at}
	granted, err := c.anyone(ctx, "lease/grant", map[string]any{"TTL": int(lease.Seconds())})
	if err != nil {
		return nil, "", inWords(err)
	}
	c.lease = granted.ID
	put := etcdKey(ClaimKey)
	put["value"], put["lease"] = []byte(owner), c.lease
	reply, err := c.anyone(ctx, "kv/txn", map[string]any{
		"compare": []any{map[string]any{"key": []byte(ClaimKey), "target": "CREATE", "create_revision": "0"}},
		"success": []any{map[string]any{"request_put": put}},
		"failure": []any{map[string]any{"request_range": etcdKey(ClaimKey)}},
	})
	c.since = reply.Header.Revision
	if err == nil && reply.Succeeded {
		return c, "", nil
	}
	_ = c.Release(ctx) // else it ends by itself
	for _, r := range reply.Responses {
		for _, kv := range r.Range.Kvs {
			return nil, string(kv.Value), nil
		}
	}
	return nil, "", inWords(cmp.Or(err, errors.New("it makes no key")))
}

// Owner reads the key.
func (c *etcdClaim) Owner(ctx context.Context, at Address) (string, error) {
	found, err := call(ctx, direct, at.Listen.String(), "kv/range", etcdKey(ClaimKey))
	if err != nil || len(found.Kvs) == 0 {
		return "", err
	}
	return string(found.Kvs[0].Value), nil
}

// Renew keeps the lease alive.
func (c *etcdClaim) Renew(ctx context.Context) error {
	reply, err := c.anyone(ctx, "lease/keepalive", map[string]string{"ID": c.lease})
	if err != nil {
		return err
	}
	if ttl := reply.Result.TTL; ttl == "" || ttl == "0" {
		return ErrClaimLost
	}
	return nil
}

// Sweep deletes the keys that are newer than the claim.
func (c *etcdClaim) Sweep(ctx context.Context) error {
	for _, prefix := range []string{LocksPrefix + "/", proofKey} {
		newer := etcdKey(prefix)
		end := []byte(prefix)
		end[len(end)-1]++
		newer["range_end"], newer["keys_only"], newer["min_create_revision"] = end, true, c.since
		found, err := c.anyone(ctx, "kv/range", newer)
		if err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
		for _, kv := range found.Kvs {
			if _, err := c.anyone(ctx, "kv/deleterange", etcdKey(string(kv.Key))); err != nil {
				return fmt.Errorf("delete a key: %w", err)
			}
		}
	}
	return nil
}

// Release ends the lease, and the key with it. One that has ended meanwhile is no longer there.
func (c *etcdClaim) Release(ctx context.Context) error {
	_, err := c.anyone(ctx, "lease/revoke", map[string]string{"ID": c.lease})
	if err != nil && !strings.Contains(err.Error(), "lease not found") {
		return fmt.Errorf("revoke a lease: %w", err)
	}
	return nil
}

// HandOver moves the leadership.
func (Etcd) HandOver(ctx context.Context, at Address, to string) error {
	_, err := call(ctx, direct, at.Listen.String(), "maintenance/transfer-leadership", map[string]string{"targetID": to})
	if err != nil {
		return fmt.Errorf("move the leadership: %w", err)
	}
	return nil
}

// call asks the JSON gateway of a member, over a connection of its own.
func call(ctx context.Context, dial Dialer, at, what string, ask any) (answer etcdAnswer, err error) {
	body, _ := json.Marshal(ask) // strings, numbers and bytes
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/v3/"+what, bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}} // and no proxy of the environment's
	response, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return answer, err
	}
	if response.StatusCode != http.StatusOK {
		return answer, &answerError{response.Status, string(bytes.TrimSpace(read))}
	}
	err = json.Unmarshal(read, &answer)
	return answer, err
}

// An answerError is an answer of another status than 200.
type answerError struct{ status, body string }

func (e *answerError) Error() string {
	return strings.TrimSuffix("it answers "+e.status+": "+e.body, ": ")
}
