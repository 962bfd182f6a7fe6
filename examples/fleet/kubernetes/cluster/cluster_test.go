// Package cluster_test plays the manifests on the real API server, scheduler and job controller of Kubernetes, with nodes
// that run pods as processes of this machine. It is a module of its own, since it compiles most of Kubernetes.
package cluster_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	"k8s.io/kubernetes/test/integration/framework"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// What the claim of the manifests is bound to, and two nodes, each with room for one pod of theirs.
const objects = `apiVersion: v1
kind: PersistentVolume
metadata: {name: results}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], hostPath: {path: /results}, claimRef: {namespace: default, name: lockchaos}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: lockchaos, annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}, volumeName: results, storageClassName: ""}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {capacity: &has {cpu: "1", memory: 4Gi, pods: "9"}, allocatable: *has, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-2}
status: {capacity: &has {cpu: "1", memory: 4Gi, pods: "9"}, allocatable: *has, conditions: [{type: Ready, status: "True"}]}`

// A cluster has the nodes of an API server.
type cluster struct {
	*kubernetes.Clientset

	t       *testing.T
	program string // lockchaos
	results string // the folder that pods see as /results

	mu   sync.Mutex
	pods map[types.UID]*exec.Cmd
	runs sync.WaitGroup
}

// start starts etcd and all that is of Kubernetes, on loopback.
func start(t *testing.T, c *cluster) {
	ktesting.SetDefaultVerbosity(0)
	url, stop, err := framework.RunCustomEtcd("lockchaos-etcd", []string{"--unsafe-no-fsync"}, io.Discard)
	must(t, err)
	t.Cleanup(stop)
	storage := storagebackend.NewDefaultConfig("lockchaos", nil)
	storage.Transport.ServerList = []string{url}
	// There are no service accounts, and nothing that would remove the taint of a new node.
	server, err := apiserver.StartTestServer(t, nil, []string{"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"}, storage)
	must(t, err)
	t.Cleanup(server.TearDownFn)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(c.runs.Wait)
	t.Cleanup(cancel)
	c.Clientset, err = kubernetes.NewForConfig(server.ClientConfig)
	must(t, err)
	all := informers.NewSharedInformerFactory(c, 0)
	jobs, err := job.NewController(ctx, all.Core().V1().Pods(), all.Batch().V1().Jobs(), c)
	must(t, err)
	_, err = all.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { c.see(ctx, o.(*core.Pod)) }, UpdateFunc: func(_, o any) { c.see(ctx, o.(*core.Pod)) },
	})
	must(t, err)
	seen := scheduler.NewInformerFactory(c, 0)
	schedules, err := scheduler.New(ctx, c, seen, nil, profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})))
	must(t, err)
	for _, factory := range []informers.SharedInformerFactory{all, seen} {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
	}
	go jobs.Run(ctx, 1)
	go schedules.Run(ctx)
	must(t, c.create(objects))
}

// create creates the objects of a text as it is: fields that are unknown or there twice are refused.
func (c *cluster) create(text string) error {
	for part := range strings.SplitSeq(text, "\n---\n") {
		path := map[string]string{
			"Job": "/apis/batch/v1/namespaces/default/jobs", "CronJob": "/apis/batch/v1/namespaces/default/cronjobs", "Node": "/api/v1/nodes",
			"NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", "PersistentVolume": "/api/v1/persistentvolumes",
			"PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
		}[regexp.MustCompile(`(?m)^kind: (\w+)$`).FindStringSubmatch(part)[1]]
		if err := c.RESTClient().Post().AbsPath(path).Param("fieldValidation", "Strict").SetHeader("Content-Type", "application/yaml").Body([]byte(part)).Do(c.t.Context()).Error(); err != nil {
			return err
		}
	}
	return nil
}

// see begins a pod that is on a node, and ends one that is to be deleted.
func (c *cluster) see(ctx context.Context, p *core.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd, begun := c.pods[p.UID]
	switch {
	case begun && p.DeletionTimestamp != nil && cmd.Process != nil:
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	case !begun && p.DeletionTimestamp == nil && p.Spec.NodeName != "":
		cmd = c.command(ctx, p)
		c.pods[p.UID] = cmd
		must(c.t, cmd.Start())
		c.runs.Go(func() { c.run(ctx, p, cmd) })
	}
}

// command is that of the first container of a pod, as a kubelet fills it in.
func (c *cluster) command(ctx context.Context, p *core.Pod) *exec.Cmd {
	of, env := p.Spec.Containers[0], map[string]string{}
	for _, e := range of.Env {
		var err error
		env[e.Name], err = fieldpath.ExtractFieldPathAsString(p, e.ValueFrom.FieldRef.FieldPath)
		must(c.t, err)
	}
	words := slices.Concat(of.Command, of.Args)
	for i, word := range words {
		words[i] = strings.Replace(expansion.Expand(word, expansion.MappingFuncFor(env)), "/results", c.results, 1)
	}
	cmd := exec.CommandContext(ctx, c.program, words[1:]...)
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

// run tells how a pod goes, and removes it where that was asked for.
func (c *cluster) run(ctx context.Context, p *core.Pod, cmd *exec.Cmd) {
	c.tell(ctx, p, core.PodRunning, core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: meta.Now()}})
	_ = cmd.Wait() // the state of the process has all
	if ctx.Err() != nil {
		return // the test has ended
	}
	phase, code := core.PodSucceeded, cmd.ProcessState.ExitCode()
	if code != 0 {
		phase = core.PodFailed
	}
	if code < 0 {
		code = 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	c.t.Logf("pod %s on %s ended with %d: %s", p.Name, p.Spec.NodeName, code, lastLine(cmd.Stderr.(*bytes.Buffer).String()))
	c.tell(ctx, p, phase, core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: int32(code), FinishedAt: meta.Now()}})
	if now, err := c.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, meta.GetOptions{}); err == nil && now.DeletionTimestamp != nil {
		must(c.t, c.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, meta.DeleteOptions{GracePeriodSeconds: new(int64)}))
	}
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// tell tells the state of a pod's container.
func (c *cluster) tell(ctx context.Context, p *core.Pod, phase core.PodPhase, state core.ContainerState) {
	of := p.Spec.Containers[0]
	patch, err := json.Marshal(map[string]any{"status": core.PodStatus{Phase: phase, ContainerStatuses: []core.ContainerStatus{{Name: of.Name, Image: of.Image, State: state}}}})
	must(c.t, err)
	if _, err = c.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status"); ctx.Err() == nil {
		must(c.t, err)
	}
}

// underWay is the name and the command of a pod of a shard that has played some seeds; empty before.
func (c *cluster) underWay(index string) (name string, cmd *exec.Cmd) {
	journal, _ := os.ReadFile(filepath.Join(c.results, "shard-"+index, "runs.jsonl"))
	if bytes.Count(journal, []byte("\n")) < 20 {
		return "", nil
	}
	pods, err := c.CoreV1().Pods("default").List(c.t.Context(), meta.ListOptions{LabelSelector: batch.JobCompletionIndexAnnotation + "=" + index})
	must(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range pods.Items {
		if cmd = c.pods[p.UID]; cmd != nil && p.Status.Phase == core.PodRunning {
			return p.Name, cmd
		}
	}
	return "", nil
}

// The shards of a job find what one process finds, byte for byte, also if a pod is evicted and another is killed: each is
// played again, and counts once. What the API server does not know in a manifest, it refuses.
func TestJob(t *testing.T) {
	program, err := exec.LookPath(cmp.Or(os.Getenv("LOCKCHAOS"), "lockchaos"))
	must(t, err)
	c := &cluster{t: t, program: program, results: t.TempDir(), pods: map[types.UID]*exec.Cmd{}}
	start(t, c)
	crons, err := os.ReadFile("../cronjob.yaml")
	must(t, err)
	must(t, c.create(string(crons)))
	b, err := os.ReadFile("../job.yaml")
	must(t, err)
	search := []string{"simulate", "--lock", "broken-plain-delete", "--seeds", "1-" + cmp.Or(os.Getenv("LOCKCHAOS_SEEDS"), "2000"), "--parallel", "1", "--shrink", "20"}
	manifest := regexp.MustCompile(`(?m)command: .*$`).ReplaceAllString(string(b), "command: [lockchaos, '"+strings.Join(search, "', '")+"']")
	for from, to := range map[string]string{"parallelism": "paralelism", "completionMode: Indexed": "completionMode: NonIndexed", "name: results, mountPath": "name: result, mountPath"} {
		if err := c.create(strings.Replace(manifest, from, to, 1)); err == nil {
			t.Errorf("%q was created instead of %q", to, from)
		}
	}
	begun := time.Now()
	must(t, c.create(manifest))
	await(t, "a pod that can be evicted", func() bool {
		name, _ := c.underWay("0")
		if name == "" {
			return false
		}
		must(t, c.PolicyV1().Evictions("default").Evict(t.Context(), &policy.Eviction{ObjectMeta: meta.ObjectMeta{Namespace: "default", Name: name}}))
		return true
	})
	await(t, "a pod that can be killed", func() bool {
		_, cmd := c.underWay("1")
		return cmd != nil && cmd.Process.Kill() == nil
	})
	var j *batch.Job
	await(t, "the job's end", func() bool {
		j, err = c.BatchV1().Jobs("default").Get(t.Context(), "lockchaos", meta.GetOptions{})
		must(t, err)
		return slices.ContainsFunc(j.Status.Conditions, func(c batch.JobCondition) bool {
			return c.Status == core.ConditionTrue && (c.Type == batch.JobComplete || c.Type == batch.JobFailed)
		})
	})
	t.Logf("the job took %.0f s: %d shards succeeded, %d pods failed beside the one that was evicted, of %d", time.Since(begun).Seconds(), j.Status.Succeeded, j.Status.Failed, len(c.pods))
	if j.Status.Succeeded != 8 || j.Status.Failed != 1 || len(c.pods) != 10 {
		t.Fatalf("want 8 shards, and one try more of two of them, of which the eviction counts as no failure: %+v", j.Status)
	}

	shards, err := filepath.Glob(filepath.Join(c.results, "shard-*"))
	must(t, err)
	joined, one := filepath.Join(t.TempDir(), "joined"), filepath.Join(t.TempDir(), "one")
	said, _ := exec.Command(program, append([]string{"merge", "--out", joined}, shards...)...).CombinedOutput() // it finds the planted bug
	t.Logf("%s", said)
	out, err := exec.Command(program, append(search, "--shard", "1/1", "--out", one, "--judged-is-ok")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(filepath.Join(joined, "search.json"))
	must(t, err)
	want, err := os.ReadFile(filepath.Join(one, "search.json"))
	must(t, err)
	if !bytes.Equal(want, got) {
		t.Errorf("one process found\n%s\nand the shards\n%s", want, got)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("waited too long for ", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
