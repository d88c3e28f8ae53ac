package deploytest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"lockkeeper/internal/test/assert"
)

const manifests = "deploy/kubernetes/lockkeeper.yaml"

// objects are the manifests, decoded as the API server does: a field that its type does not have is an error, and so is one
// that is given twice.
type objects struct {
	namespace  core.Namespace
	settings   core.ConfigMap
	account    core.ServiceAccount
	deployment apps.Deployment
	service    core.Service
	budget     policy.PodDisruptionBudget
	network    network.NetworkPolicy
}

func decode(text string) (o objects, err error) {
	targets := map[string]any{"v1/Namespace": &o.namespace, "v1/ConfigMap": &o.settings, "v1/ServiceAccount": &o.account,
		"apps/v1/Deployment": &o.deployment, "v1/Service": &o.service, "policy/v1/PodDisruptionBudget": &o.budget,
		"networking.k8s.io/v1/NetworkPolicy": &o.network}
	for _, document := range strings.Split(text, "\n---\n") {
		var kind meta.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return o, err
		}
		name := kind.APIVersion + "/" + kind.Kind
		target := targets[name]
		if target == nil {
			return o, fmt.Errorf("%s is not expected, or comes twice", name)
		}
		delete(targets, name)
		data, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			return o, fmt.Errorf("%s: %w", name, err)
		}
		if wrong, err := json.UnmarshalStrict(data, target); err != nil || len(wrong) > 0 {
			return o, fmt.Errorf("%s: %w", name, errors.Join(append(wrong, err)...))
		}
	}
	if len(targets) > 0 {
		return o, fmt.Errorf("missing: %v", slices.Sorted(maps.Keys(targets)))
	}
	return o, nil
}

func TestTheManifestsAreWhatKubernetesUnderstands(t *testing.T) {
	o := assert.Value(decode(read(t, manifests)))(t)
	pod := o.deployment.Spec.Template
	labels := pod.Labels
	for what, selector := range map[string]map[string]string{"Deployment": o.deployment.Spec.Selector.MatchLabels, "Service": o.service.Spec.Selector,
		"PodDisruptionBudget": o.budget.Spec.Selector.MatchLabels, "NetworkPolicy": o.network.Spec.PodSelector.MatchLabels,
		"topology": pod.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels} {
		assert.That(t, len(selector) != 0 && maps.Equal(selector, labels), "%s selects %v, and the pods are %v", what, selector, labels)
	}
	for what, in := range map[string]string{"ConfigMap": o.settings.Namespace, "ServiceAccount": o.account.Namespace, "Deployment": o.deployment.Namespace,
		"Service": o.service.Namespace, "PodDisruptionBudget": o.budget.Namespace, "NetworkPolicy": o.network.Namespace} {
		assert.That(t, in == o.namespace.Name, "%s is in the namespace %q", what, in)
	}
	assert.That(t, pod.Spec.ServiceAccountName == o.account.Name && len(pod.Spec.Containers) == 1,
		"account %q, %d containers", pod.Spec.ServiceAccountName, len(pod.Spec.Containers))
	c := pod.Spec.Containers[0]
	_, tag, ok := strings.Cut(c.Image, ":")
	assert.That(t, ok && tag != "latest", "image %q may be another one tomorrow", c.Image)
	// Pod Security's "restricted", which the namespace asks for.
	s, p := c.SecurityContext, pod.Spec.SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) ||
		!*p.RunAsNonRoot || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("rights: %+v, %+v", s, p)
	}
	if user := regexp.MustCompile(`(?m)^USER (\d+):`).FindStringSubmatch(read(t, "Dockerfile")); user == nil || user[1] != fmt.Sprint(*p.RunAsUser) {
		t.Errorf("the image's user is %v, and the pod's %d", user, *p.RunAsUser)
	}
	assert.That(t, !*pod.Spec.EnableServiceLinks, "the Service's variables are taken for settings")
	ports := map[string]int32{}
	for _, port := range c.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for path, probe := range map[string]*core.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		assert.That(t, probe.HTTPGet.Path == path && ports[probe.HTTPGet.Port.String()] == 8080,
			"a probe asks %s at %s", probe.HTTPGet.Path, probe.HTTPGet.Port.String())
	}
	assert.That(t, ports[o.service.Spec.Ports[0].TargetPort.String()] == 8080,
		"the Service leads to %s", o.service.Spec.Ports[0].TargetPort.String())
	for _, rule := range o.network.Spec.Ingress {
		for _, port := range rule.Ports {
			assert.That(t, ports[port.Port.String()] != 0, "the NetworkPolicy lets a client in at %s", port.Port.String())
		}
	}
	// One may be away: with the others, and the one more of an update, there is always a successor.
	if o.budget.Spec.MaxUnavailable.IntValue() != 1 || *o.deployment.Spec.Replicas < 3 || o.deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
		t.Error("an update or a drained node may leave too few")
	}
}

func TestTheGatewayTakesTheSettingsOfTheManifestsAndHasTheTimeToLeave(t *testing.T) {
	o := assert.Value(decode(read(t, manifests)))(t)
	spec := o.deployment.Spec.Template.Spec
	c := spec.Containers[0]
	assert.Must(t, len(c.EnvFrom) == 1 && c.EnvFrom[0].ConfigMapRef.Name == o.settings.Name, "settings come from %+v", c.EnvFrom)
	environment := maps.Clone(o.settings.Data)
	environment["LOCKKEEPER_LISTEN"] = ":8080" // the image's
	for name := range environment {
		assert.That(t, known(t, name), "%s is no setting", name)
	}
	args := slices.Clone(c.Args)
	for _, e := range c.Env {
		if e.Name == "LOCKKEEPER_ZK_AUTH_FILE" { // its content is a test of its own
			continue
		}
		if e.ValueFrom == nil || e.ValueFrom.FieldRef.FieldPath != "status.podIP" {
			t.Errorf("variable %+v", e)
			continue
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "$("+e.Name+")", "10.1.2.3")
		}
	}
	printed := accepted(t, environment, args...)
	if got := setting(t, printed, "advertise"); got != "10.1.2.3:8081" || setting(t, printed, "fleet-listen") != ":8081" || !slices.ContainsFunc(c.Ports, func(p core.ContainerPort) bool { return p.Name == "fleet" && p.ContainerPort == 8081 }) {
		t.Errorf("each pod tells the others to find it at %s, and listens for them at %s", got, setting(t, printed, "fleet-listen"))
	}
	for _, port := range o.service.Spec.Ports {
		assert.Equal(t, port.TargetPort.String(), "http", "the Service leads to")
	}
	for _, host := range []string{o.service.Name, o.service.Name + "." + o.service.Namespace, o.service.Name + "." + o.service.Namespace + ".svc"} {
		assert.That(t, strings.Contains(","+o.settings.Data["LOCKKEEPER_ALLOWED_HOSTS"]+",", ","+host+","), "no client may ask for %s", host)
	}
	drain := duration(t, setting(t, printed, "drain-delay"))
	grace := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second
	assert.That(t, grace > drain+handover(t), "a pod is killed after %v, and takes %v to leave", grace, drain+handover(t))
	// Long enough for the probe to have failed and the news of it to have got around.
	if p := c.ReadinessProbe; drain < time.Duration(p.PeriodSeconds*p.FailureThreshold)*time.Second+5*time.Second {
		t.Errorf("a pod is out of service after %d probes, and refuses requests after %v", p.FailureThreshold, drain)
	}
}

// known tells whether a variable is one of the gateway's.
func known(t testing.TB, variable string) bool {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "LOCKKEEPER_"), "_", "-"))
	return regexp.MustCompile(`(?m)^#? ?` + name + `:`).MatchString(accepted(t, map[string]string{"LOCKKEEPER_ZK": "zk:2181"}))
}

func TestAManifestWithATypingErrorIsRefused(t *testing.T) {
	text := read(t, manifests)
	for from, to := range map[string]string{"terminationGracePeriodSeconds": "terminationGraceSeconds", "readOnlyRootFilesystem: true": "readOnlyRootFilesystem: yes-please",
		"maxUnavailable: 1": "maxUnavailable: 1\n  maxUnavailable: 2", "kind: Service\n": "kind: Servce\n", "serviceAccountName": "serviceaccountname"} {
		_, err := decode(strings.Replace(text, from, to, 1))
		assert.That(t, err != nil, "%q is taken", to)
	}
}

// The manifests show an ensemble with an identity, and the gateway can read its file.
func TestTheFleetHasAnIdentityTowardZooKeeper(t *testing.T) {
	o := assert.Value(decode(read(t, manifests)))(t)
	spec := o.deployment.Spec.Template.Spec
	at := slices.IndexFunc(spec.Containers[0].Env, func(e core.EnvVar) bool { return e.Name == "LOCKKEEPER_ZK_AUTH_FILE" })
	if at < 0 || len(spec.Volumes) != 1 || len(spec.Containers[0].VolumeMounts) != 1 || spec.Volumes[0].Name != spec.Containers[0].VolumeMounts[0].Name {
		t.Fatalf("the variable is at %d, the volumes are %+v", at, spec.Volumes)
	}
	mount, secret := spec.Containers[0].VolumeMounts[0], spec.Volumes[0].Secret
	if spec.Containers[0].Env[at].Value != mount.MountPath+"/auth" || !mount.ReadOnly {
		t.Errorf("the gateway looks for %s, and %+v is mounted", spec.Containers[0].Env[at].Value, mount)
	}
	assert.That(t, *secret.DefaultMode == 0o400 && *spec.SecurityContext.FSGroup == *spec.SecurityContext.RunAsGroup,
		"the gateway could not read it, or others could")
	made := "create secret generic " + secret.SecretName + " --from-literal=auth=\"digest "
	assert.That(t, strings.Contains(read(t, manifests), made), "it is not said how the Secret is made: %s", made)
}
