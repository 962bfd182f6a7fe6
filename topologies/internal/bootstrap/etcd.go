package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/topologies"
)

// Etcd is etcd from 3.4 on. It is asked over the JSON gateway of its clients' port.
// Make it with [NewEtcd].
type Etcd struct {
	direct *http.Client // past every link
}

var _ Consensus = (*Etcd)(nil)

// NewEtcd returns one, for one deployment.
func NewEtcd() *Etcd {
	return &Etcd{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idleEach}}} // and no proxy of the environment's
}

// idleEach is how many connections to a member wait for the next question.
const idleEach = 4

// Close ends the connections to the members.
func (e *Etcd) Close() { e.direct.CloseIdleConnections() }

// How often a leader is heard of, and after how much silence a member asks for an
// election. The shortest lease that etcd gives is one and a half of the latter, rounded up
// to a second.
const (
	etcdHeartbeat = 50 * time.Millisecond
	etcdElection  = 500 * time.Millisecond
)

// Configure starts a member of a new cluster. With pre-vote, a member that was cut off
// does not depose the leader when it comes back.
func (*Etcd) Configure(t topologies.Topology, name string, at map[string]Address) (Config, error) {
	var all []string
	for _, member := range t.Servers() {
		if _, ok := at[member]; !ok {
			return Config{}, fmt.Errorf("server %s has no address", member)
		}
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
	}}, nil
}

func announcedPeer(a Address) string {
	return netip.AddrPortFrom(a.Announced.Addr(), a.AnnouncedBus).String()
}

func listeningPeer(a Address) string {
	return netip.AddrPortFrom(a.Listen.Addr(), a.Bus).String()
}

// Alive asks at the peers' port: that of clients is silent until the member has found a
// leader.
func (e *Etcd) Alive(ctx context.Context, at Address) error {
	ctx, cancel := context.WithTimeout(ctx, observerTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listeningPeer(at)+peerPath, http.NoBody)
	if err != nil {
		return err
	}
	response, err := e.direct.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// What is asked to see whether something answers: members probe each other so; of a
// client's path that does not exist, the refusal comes without a look at the store.
const (
	peerPath   = "/raft/probing"
	clientPath = "/lockchaos"
)

// Greeting asks for one of those paths.
func (*Etcd) Greeting(kind topologies.LinkKind) []byte {
	path := clientPath
	if kind == topologies.Peer {
		path = peerPath
	}
	return []byte("GET " + path + " HTTP/1.1\r\nHost: etcd\r\n\r\n")
}

// State asks for the member's status.
func (e *Etcd) State(ctx context.Context, at Address) (MemberState, error) {
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	if err := call(ctx, e.direct, at.Listen.String(), "maintenance/status", struct{}{}, &status); err != nil {
		return MemberState{}, err
	}
	if status.Leader == "0" {
		status.Leader = ""
	}
	return MemberState{ID: status.Header.MemberID, Leader: status.Leader}, nil
}

// Serves writes a key, and leaves nothing of it.
func (*Etcd) Serves(ctx context.Context, dial Dialer, announced string) error {
	through := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	defer through.CloseIdleConnections()
	client := &http.Client{Transport: through}
	key := map[string][]byte{"key": []byte(proofKey)}
	if err := call(ctx, client, announced, "kv/put", key, nil); err != nil {
		return err
	}
	return call(ctx, client, announced, "kv/deleterange", key, nil)
}

// HandOver moves the leadership.
func (e *Etcd) HandOver(ctx context.Context, at Address, to string) error {
	err := call(ctx, e.direct, at.Listen.String(), "maintenance/transfer-leadership", map[string]string{"targetID": to}, nil)
	if err != nil {
		return fmt.Errorf("move the leadership: %w", err)
	}
	return nil
}

// maxReply is how much of a reply is read.
const maxReply = 1 << 20

// call asks the JSON gateway of a member.
func call(ctx context.Context, client *http.Client, at, what string, ask, reply any) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at+"/v3/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s: %s", response.Status, bytes.TrimSpace(read))
	}
	if reply == nil {
		return nil
	}
	return json.Unmarshal(read, reply)
}

// ParseEtcdVersion reads what `etcd --version` prints.
func ParseEtcdVersion(out string) (string, error) {
	m := regexp.MustCompile(`(?m)^etcd Version: (\d+\.\d+\.\d+)`).FindStringSubmatch(out)
	if m == nil {
		return "", errors.New("no version of etcd in what it prints")
	}
	return m[1], nil
}
