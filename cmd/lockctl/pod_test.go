package main

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"lockkeeper/internal/test/assert"
)

// The pod with a sidecar is what Kubernetes understands, and the sidecar's command line is what lockctl understands.
func TestThePodOfTheElectionIsUnderstood(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/elected.yaml")
	assert.NoError(t, err)
	data, err := yaml.YAMLToJSONStrict(text)
	assert.NoError(t, err)
	var d apps.Deployment
	wrong, err := json.UnmarshalStrict(data, &d)
	assert.Must(t, err == nil && len(wrong) == 0, "%v %v", err, wrong)
	pod := d.Spec.Template
	assert.That(t, d.Spec.Selector.MatchLabels["app"] == pod.Labels["app"], "the Deployment selects %v", d.Spec.Selector.MatchLabels)
	assert.Must(t, len(pod.Spec.InitContainers) == 1, "%d sidecars", len(pod.Spec.InitContainers))
	sidecar := pod.Spec.InitContainers[0]
	assert.That(t, sidecar.RestartPolicy != nil && *sidecar.RestartPolicy == core.ContainerRestartPolicyAlways, "it is no sidecar")
	for _, c := range append(pod.Spec.Containers, sidecar) {
		s := c.SecurityContext
		assert.That(t, !*s.AllowPrivilegeEscalation && *s.ReadOnlyRootFilesystem && slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}), "%s: %+v", c.Name, s)
	}

	args := slices.Clone(sidecar.Args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAME)", "billing-7c9d-x2x")
	}
	var c cli
	a := &app{stdout: io.Discard, stderr: io.Discard}
	_, err = newParser(&c, a, func(int) {}).Parse(args)
	assert.NoError(t, err)
	assert.NoError(t, c.Elect.settle(time.Minute))
	assert.Equal(t, c.Elect.Serve, "127.0.0.1:4040")
	assert.Equal(t, c.Elect.Owner, "billing-7c9d-x2x")
	assert.That(t, strings.Contains(string(text), "http://"+c.Elect.Serve+"/leader"), "the program does not ask at %s", c.Elect.Serve)
}
