// Package kubernetes_test decodes the manifests as the types of k8s.io/api have them. It is a module of its own, so that
// lockchaos does not depend on them.
package kubernetes_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// decode reads the objects of a file: a field that is unknown or there twice, or of another type, is an error.
func decode(b []byte) (all []runtime.Object, err error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{batch.AddToScheme, core.AddToScheme, networking.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	d := json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
	for _, part := range bytes.Split(b, []byte("\n---\n")) {
		o, _, err := d.Decode(part, nil, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func TestManifests(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := decode(b)
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		jobs := 0
		for _, o := range objects {
			switch o := o.(type) {
			case *batch.Job:
				check(t, file, o.Spec)
				jobs++
			case *batch.CronJob:
				check(t, file+", "+o.Name, o.Spec.JobTemplate.Spec)
				jobs++
			case *networking.NetworkPolicy:
				if len(o.Spec.PolicyTypes) != 2 || len(o.Spec.Ingress)+len(o.Spec.Egress) > 0 || o.Spec.PodSelector.MatchLabels["app"] != "lockchaos" {
					t.Errorf("%s: the policy lets something pass: %+v", file, o.Spec)
				}
			}
		}
		if jobs == 0 {
			t.Errorf("%s has no job", file)
		}
	}
}

// check looks at what the types allow, and a cluster would not, or what would let a pod do more than it needs.
func check(t *testing.T, name string, job batch.JobSpec) {
	t.Helper()
	pod := job.Template.Spec
	if job.Template.Labels["app"] != "lockchaos" || pod.RestartPolicy != core.RestartPolicyNever || *pod.AutomountServiceAccountToken || !*pod.SecurityContext.RunAsNonRoot ||
		pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod can do more than it needs: %+v", name, pod)
	}
	c := pod.Containers[0]
	if s := c.SecurityContext; len(pod.Containers) > 1 || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Contains(s.Capabilities.Drop, "ALL") {
		t.Errorf("%s: the container can do more than it needs: %+v", name, s)
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s: there is no volume %s", name, m.Name)
		}
	}
	words := strings.Join(slices.Concat(c.Command, c.Args), " ")
	if c.Command[0] == "sh" {
		if out, err := exec.Command("sh", "-n", "-c", c.Args[0]).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
	if job.CompletionMode == nil {
		return
	}
	// NonIndexed with a limit for each index, and a limit that is above the number of them, decode and are refused.
	if *job.CompletionMode != batch.IndexedCompletion || job.BackoffLimitPerIndex == nil || *job.MaxFailedIndexes > *job.Completions {
		t.Errorf("%s: it has no indices, or no limit for each", name)
	}
	if shard := fmt.Sprintf("--shard @JOB_COMPLETION_INDEX/%d ", *job.Completions); !strings.Contains(words, shard) {
		t.Errorf("%s: the shards are not those of %d indices: %s", name, *job.Completions, words)
	}
	for _, rule := range job.PodFailurePolicy.Rules {
		if slices.ContainsFunc(rule.OnPodConditions, func(p batch.PodFailurePolicyOnPodConditionsPattern) bool { return p.Status == "" }) {
			t.Errorf("%s: a condition of a pod has no status, which a CronJob is refused for", name)
		}
		if rule.OnExitCodes != nil && *rule.OnExitCodes.ContainerName != c.Name {
			t.Errorf("%s: there is no container %s", name, *rule.OnExitCodes.ContainerName)
		}
	}
}
