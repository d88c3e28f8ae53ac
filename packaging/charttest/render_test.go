package charttest

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/helm/lockkeeper"

// gateway is the program that the chart is about. TestMain alone writes it.
var gateway string

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // helm says of each symbolic link that it follows it
	code := 1
	dir, err := os.MkdirTemp("", "lockkeeper-chart-")
	if err == nil {
		gateway = filepath.Join(dir, "gateway")
		build := exec.Command("go", "build", "-C", "../..", "-o", gateway, "./cmd/gateway")
		if out, failed := build.CombinedOutput(); failed != nil {
			err = fmt.Errorf("building the gateway: %w\n%s", failed, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// render returns what helm install NAME would apply, as text, by the template's name.
func render(values string) (map[string]string, error) {
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		return nil, err
	}
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: "locks", Namespace: "infra", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// objects are those of one rendering.
type objects struct {
	stateful    *apps.StatefulSet
	deployment  *apps.Deployment
	services    map[string]*core.Service
	accounts    map[string]*core.ServiceAccount
	configs     map[string]*core.ConfigMap
	budget      *policy.PodDisruptionBudget
	network     *network.NetworkPolicy
	ingress     *network.Ingress
	monitor     *monitoring.ServiceMonitor
	rule        *monitoring.PrometheusRule
	certificate *certificate
	notes       string
}

// certificate is what the chart uses of cert-manager's type.
type certificate struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		SecretName string   `json:"secretName"`
		DNSNames   []string `json:"dnsNames"`
		Usages     []string `json:"usages"`
		Duration   string   `json:"duration"`
		IssuerRef  struct {
			Name  string `json:"name"`
			Kind  string `json:"kind"`
			Group string `json:"group"`
		} `json:"issuerRef"`
		PrivateKey struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
	} `json:"spec"`
}

// rendered decodes each object as the API server does: a field that its type does not have is an error.
func rendered(t *testing.T, values string) *objects {
	t.Helper()
	files, err := render(values)
	if err != nil {
		t.Fatalf("%v\nwith the values\n%s", err, values)
	}
	o := &objects{services: map[string]*core.Service{}, accounts: map[string]*core.ServiceAccount{}, configs: map[string]*core.ConfigMap{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			o.notes = files[name]
			continue
		}
		for _, document := range strings.Split("\n"+files[name], "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			if err := o.add(document); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
		}
	}
	return o
}

func (o *objects) add(document string) error {
	var kind struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
	}
	if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
		return err
	}
	if kind.Metadata.Namespace != "infra" {
		return fmt.Errorf("%s is in the namespace %q", kind.Kind, kind.Metadata.Namespace)
	}
	data, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return err
	}
	var target any
	switch kind.APIVersion + "/" + kind.Kind {
	case "apps/v1/StatefulSet":
		o.stateful = &apps.StatefulSet{}
		target = o.stateful
	case "apps/v1/Deployment":
		o.deployment = &apps.Deployment{}
		target = o.deployment
	case "v1/Service":
		o.services[kind.Metadata.Name] = &core.Service{}
		target = o.services[kind.Metadata.Name]
	case "v1/ServiceAccount":
		o.accounts[kind.Metadata.Name] = &core.ServiceAccount{}
		target = o.accounts[kind.Metadata.Name]
	case "v1/ConfigMap":
		o.configs[kind.Metadata.Name] = &core.ConfigMap{}
		target = o.configs[kind.Metadata.Name]
	case "policy/v1/PodDisruptionBudget":
		o.budget = &policy.PodDisruptionBudget{}
		target = o.budget
	case "networking.k8s.io/v1/NetworkPolicy":
		o.network = &network.NetworkPolicy{}
		target = o.network
	case "networking.k8s.io/v1/Ingress":
		o.ingress = &network.Ingress{}
		target = o.ingress
	case "monitoring.coreos.com/v1/ServiceMonitor":
		o.monitor = &monitoring.ServiceMonitor{}
		target = o.monitor
	case "monitoring.coreos.com/v1/PrometheusRule":
		o.rule = &monitoring.PrometheusRule{}
		target = o.rule
	case "cert-manager.io/v1/Certificate":
		o.certificate = &certificate{}
		target = o.certificate
	default:
		return fmt.Errorf("%s/%s is not expected", kind.APIVersion, kind.Kind)
	}
	wrong, err := json.UnmarshalStrict(data, target)
	return errors.Join(append(wrong, err)...)
}

// pod is that of the workload, whichever it is.
func (o *objects) pod(t *testing.T) (core.PodTemplateSpec, map[string]string) {
	t.Helper()
	switch {
	case o.stateful != nil && o.deployment == nil:
		return o.stateful.Spec.Template, o.stateful.Spec.Selector.MatchLabels
	case o.deployment != nil && o.stateful == nil:
		return o.deployment.Spec.Template, o.deployment.Spec.Selector.MatchLabels
	}
	t.Fatal("there is not one workload")
	return core.PodTemplateSpec{}, nil
}

// settings are the gateway's variables, as Kubernetes expands them in the pod locks-0.
func settings(pod core.PodTemplateSpec) map[string]string {
	set := map[string]string{"LOCKKEEPER_LISTEN": ":8080"} // the image's
	fields := map[string]string{"metadata.name": "locks-lockkeeper-0", "status.podIP": "10.1.2.3"}
	if slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e core.EnvVar) bool { return strings.HasPrefix(e.Value, "[$(") }) {
		fields["status.podIP"] = "fd00::1"
	}
	seen := map[string]string{}
	for _, e := range pod.Spec.Containers[0].Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = fields[e.ValueFrom.FieldRef.FieldPath]
		}
		for name, is := range seen {
			value = strings.ReplaceAll(value, "$("+name+")", is)
		}
		seen[e.Name] = value
		if strings.HasPrefix(e.Name, "LOCKKEEPER_") {
			set[e.Name] = value
		}
	}
	return set
}

// asked runs the gateway with these settings, and returns its exit code and what it says.
func asked(t *testing.T, set map[string]string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), gateway, args...)
	for name, value := range set {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}
