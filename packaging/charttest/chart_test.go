package charttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

const rules = `
  rules:
    roles:
      ci: [{ns: default, locks: "ci:*", verbs: [acquire], max_ttl: 1h}]
    who: [{token: "ci-*", roles: [ci]}]
`

// cases are the values that users begin with.
var cases = map[string]string{
	"one gateway, TLS by a Secret":         "access:" + rules + "tls: {secret: locks-tls}\n",
	"one gateway behind an ingress":        "access:" + rules + "tls: {plaintext: true}\ningress: {enabled: true, host: locks.example.com, className: nginx, tlsSecret: web}\n",
	"one gateway without rules":            "access: {insecure: true}\n",
	"one gateway, TLS by cert-manager":     "access: {existingSecret: rules}\ntls: {certManager: {issuer: internal, kind: ClusterIssuer, duration: 2160h}, clientAuthorities: people}\n",
	"a fleet behind an ingress":            "access:" + rules + "tls: {plaintext: true}\nzookeeper: {servers: \"zk-0.zk:2181,zk-1.zk:2181/apps\", identity: {secret: zk}}\n",
	"a fleet with TLS":                     "access: {existingConfigMap: rules}\ntls: {secret: locks-tls}\nzookeeper: {servers: \"zk:2181\", identity: {secret: zk, key: id}}\n",
	"a fleet with TLS everywhere":          "access:" + rules + "tls: {certManager: {issuer: internal}}\nzookeeper: {servers: \"zk:2281\", tls: {secret: zk-tls, clientCertificate: true}}\nnetworkPolicy: {zookeeperPort: 2281}\nreplicas: 5\n",
	"a fleet without rules":                "access: {insecure: true}\nzookeeper: {servers: \"zk:2181\", identity: {secret: zk}}\nreplicas: 2\nipv6: true\n",
	"everything that can be watched":       "access:" + rules + "tls: {secret: locks-tls}\nmetrics: {enabled: true, serviceMonitor: {enabled: true, labels: {release: prom}}, prometheusRule: {enabled: true}}\ndashboard: {enabled: true}\n",
	"every setting and everything on top":  "access:" + rules + "tls: {plaintext: true}\nsettings: {max-leases: 1000000, session-timeout: 15s, log-level: debug, log-format: text, webhook-allow-private: true, max-rate-per-principal: 2.5}\nhosts: [locks.example.com]\npodLabels: {a: b}\npodAnnotations: {c: d}\nextraEnv: [{name: GODEBUG, value: x=1}]\nextraVolumes: [{name: ca, configMap: {name: ca}}]\nextraVolumeMounts: [{name: ca, mountPath: /ca}]\npriorityClassName: high\nnodeSelector: {disk: fast}\ntolerations: [{key: x, operator: Exists}]\naffinity: {nodeAffinity: {}}\nimagePullSecrets: [{name: pull}]\nserviceAccount: {annotations: {e: f}}\nservice: {type: LoadBalancer, port: 8443, annotations: {g: h}}\nnetworkPolicy: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}\npersistence: {storageClass: fast, size: 5Gi, accessMode: ReadWriteOncePod, annotations: {i: j}}\n",
	"names of one's own and nothing extra": "access: {insecure: true}\nfullnameOverride: doors\nnetworkPolicy: {enabled: false}\nserviceAccount: {create: false}\nimage: {digest: \"sha256:" + strings.Repeat("ab", 32) + "\"}\n",
}

func each(t *testing.T, f func(t *testing.T, o *objects, values string)) {
	for name, values := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, rendered(t, values), values)
		})
	}
}

func TestKubernetesUnderstandsWhatIsRenderedAndItFitsTogether(t *testing.T) {
	each(t, func(t *testing.T, o *objects, _ string) {
		pod, selector := o.pod(t)
		ports := map[string]int32{}
		for _, p := range pod.Spec.Containers[0].Ports {
			ports[p.Name] = p.ContainerPort
		}
		within := func(what string, chosen map[string]string) {
			t.Helper()
			for name, value := range chosen {
				if len(chosen) == 0 || pod.Labels[name] != value {
					t.Errorf("%s selects %v, and the pods have %v", what, chosen, pod.Labels)
				}
			}
		}
		within("the workload", selector)
		for name, service := range o.services {
			within("the Service "+name, service.Spec.Selector)
			for _, p := range service.Spec.Ports {
				if ports[p.TargetPort.String()] == 0 {
					t.Errorf("the Service %s leads to %s", name, p.TargetPort.String())
				}
			}
		}
		if o.stateful != nil && o.services[o.stateful.Spec.ServiceName] == nil {
			t.Errorf("there is no Service %s for the names of the pods", o.stateful.Spec.ServiceName)
		}
		if o.network != nil {
			within("the NetworkPolicy", o.network.Spec.PodSelector.MatchLabels)
			for _, rule := range o.network.Spec.Ingress {
				for _, p := range rule.Ports {
					if ports[p.Port.String()] == 0 || len(rule.From) == 0 {
						t.Errorf("the NetworkPolicy lets %v in at %s", rule.From, p.Port)
					}
				}
			}
		}
		if o.budget != nil {
			within("the PodDisruptionBudget", o.budget.Spec.Selector.MatchLabels)
		}
		if o.ingress != nil && o.services[o.ingress.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name] == nil {
			t.Error("the Ingress leads nowhere")
		}
		if name := pod.Spec.ServiceAccountName; name != "default" && o.accounts[name] == nil {
			t.Errorf("there is no ServiceAccount %s", name)
		}
		mounted(t, o, pod)
		restricted(t, pod)
	})
}

// mounted: each mount has a volume, each volume is mounted, and each ConfigMap that the chart is to make is there.
func mounted(t *testing.T, o *objects, pod core.PodTemplateSpec) {
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = false
		if v.Secret != nil && *v.Secret.DefaultMode != 0o400 {
			t.Errorf("others could read %s", v.Name)
		}
		if v.ConfigMap != nil && strings.HasPrefix(v.ConfigMap.Name, "locks-lockkeeper") && o.configs[v.ConfigMap.Name] == nil {
			t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
		}
	}
	if o.stateful != nil {
		for _, claim := range o.stateful.Spec.VolumeClaimTemplates {
			volumes[claim.Name] = false
		}
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if taken, ok := volumes[mount.Name]; !ok || taken {
			t.Errorf("%s is mounted twice, or is no volume", mount.Name)
		}
		volumes[mount.Name] = true
		if mount.Name != "data" && mount.Name != "ca" && !mount.ReadOnly {
			t.Errorf("the gateway could write %s", mount.Name)
		}
	}
	for name, is := range volumes {
		if !is {
			t.Errorf("the volume %s is mounted nowhere", name)
		}
	}
	for name, value := range settings(pod) {
		at := regexp.MustCompile(`^/(etc/lockkeeper/[^/]+|data)/`).FindString(value)
		if strings.HasPrefix(value, "/") && !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath+"/" == at }) {
			t.Errorf("%s is %s, and nothing is mounted there", name, value)
		}
	}
}

// restricted is Pod Security's profile of that name, and the image's user.
func restricted(t *testing.T, pod core.PodTemplateSpec) {
	p, s := pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || !*p.RunAsNonRoot ||
		p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *p.RunAsUser != 65532 || *p.FSGroup != 65532 {
		t.Errorf("rights: %+v, %+v", s, p)
	}
	if *pod.Spec.EnableServiceLinks || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the pod has the Services' variables, which are taken for settings, or a token that it does not need")
	}
}

func TestTheGatewayTakesTheSettingsOfItsPod(t *testing.T) {
	each(t, func(t *testing.T, o *objects, _ string) {
		pod, _ := o.pod(t)
		set := settings(pod)
		_, example := asked(t, map[string]string{}, "config", "print")
		_, fleet := asked(t, map[string]string{"LOCKKEEPER_ZK": "zk:2181"}, "config", "print")
		for name := range set {
			key := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "LOCKKEEPER_"), "_", "-"))
			if !regexp.MustCompile(`(?m)^#? ?` + key + `:`).MatchString(example + fleet) {
				t.Errorf("%s is no setting of the gateway", name)
			}
		}
		// Its files, in a directory of the test's.
		dir := t.TempDir()
		certificate, key := selfSigned(t)
		for path, data := range map[string][]byte{"tls/tls.crt": certificate, "tls/tls.key": key, "tls/ca.crt": certificate, "clients/ca.crt": certificate,
			"zk-tls/ca.crt": certificate, "zk-tls/tls.crt": certificate, "zk-tls/tls.key": key, "access/auth.yaml": []byte("anonymous: [read]\n")} {
			if path == "access/auth.yaml" && o.configs["locks-lockkeeper-access"] != nil {
				data = []byte(o.configs["locks-lockkeeper-access"].Data["auth.yaml"])
			}
			if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, path), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for name, value := range set {
			set[name] = strings.Replace(strings.Replace(value, "/etc/lockkeeper", dir, 1), "/data/lockkeeper", dir+"/data", 1)
		}
		if code, said := asked(t, set, "config", "print"); code != 0 {
			t.Fatalf("exit code %d: %s", code, said)
		}
		if set["LOCKKEEPER_AUTH_FILE"] != "" {
			if code, said := asked(t, set, "auth", "check"); code != 0 {
				t.Errorf("the rules: %s", said)
			}
		}
		// Printing checks each setting, and not whether they go together: starting does. It comes as far as a file that is not there.
		if code, said := asked(t, set, "--zk-auth-file=/nowhere/to/be/found"); code != 78 || !strings.Contains(said, "/nowhere/to/be/found") {
			t.Errorf("it does not start: exit code %d: %s", code, said)
		}
		// What the rules protect is open nowhere else.
		if set["LOCKKEEPER_INSECURE"] != "" && set["LOCKKEEPER_AUTH_FILE"] != "" && set["LOCKKEEPER_METRICS_LISTEN"] == "" {
			t.Error("--insecure beside rules, and without a listener for metrics that needs it")
		}
	})
}

func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"locks"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func TestOneGatewayHasAVolumeAndAFleetHasNone(t *testing.T) {
	each(t, func(t *testing.T, o *objects, values string) {
		pod, _ := o.pod(t)
		set := settings(pod)
		if fleet := strings.Contains(values, "servers:"); !fleet {
			s := o.stateful
			if s == nil || *s.Spec.Replicas != 1 || len(s.Spec.VolumeClaimTemplates) != 1 || s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted != "Retain" {
				t.Fatalf("one gateway and its volume: %+v", s)
			}
			if o.budget != nil {
				t.Error("a budget for one gateway keeps nodes from being drained")
			}
			if set["LOCKKEEPER_DATA_DIR"] != "/data/lockkeeper" || set["LOCKKEEPER_ZK"] != "" || set["LOCKKEEPER_FLEET_LISTEN"] != "" {
				t.Errorf("settings: %v", set)
			}
			return
		}
		if o.stateful != nil && len(o.stateful.Spec.VolumeClaimTemplates) != 0 || o.budget == nil || o.budget.Spec.MaxUnavailable.IntValue() != 1 {
			t.Errorf("a gateway of a fleet has a volume, or there is no budget: %+v", o.budget)
		}
		advertise, tls := set["LOCKKEEPER_ADVERTISE"], set["LOCKKEEPER_TLS_CERT_FILE"] != ""
		wants := "10.1.2.3:8081"
		if tls {
			// By the name that the certificate is good for.
			wants = "https://locks-lockkeeper-0.locks-lockkeeper-fleet.infra.svc:8081"
			if service := o.services["locks-lockkeeper-fleet"]; service == nil || service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses {
				t.Errorf("the name does not lead to the pod: %+v", service)
			}
		} else if strings.Contains(values, "ipv6: true") {
			wants = "[fd00::1]:8081"
		}
		if (set["LOCKKEEPER_PEER_CA_FILE"] != "") != tls {
			t.Error("gateways do not know which CA has signed the certificates of the others")
		}
		if advertise != wants || (o.stateful != nil) != tls {
			t.Errorf("gateways reach each other at %q, not %q", advertise, wants)
		}
		if o.certificate != nil && !slices.Contains(o.certificate.Spec.DNSNames, "*.locks-lockkeeper-fleet.infra.svc") {
			t.Errorf("the certificate is for %v", o.certificate.Spec.DNSNames)
		}
	})
}

func TestClientsFindTheGatewayByTheNamesItIsTold(t *testing.T) {
	o := rendered(t, cases["one gateway, TLS by cert-manager"])
	pod, _ := o.pod(t)
	for _, name := range []string{"locks-lockkeeper", "locks-lockkeeper.infra", "locks-lockkeeper.infra.svc"} {
		if !strings.Contains(","+settings(pod)["LOCKKEEPER_ALLOWED_HOSTS"]+",", ","+name+",") || !slices.Contains(o.certificate.Spec.DNSNames, name) {
			t.Errorf("the gateway refuses the name %s, or the certificate is not good for it", name)
		}
	}
	if o.certificate.Spec.SecretName != "locks-lockkeeper-tls" || o.services["locks-lockkeeper"].Spec.Ports[0].Port != 443 {
		t.Errorf("%+v", o.certificate.Spec)
	}
	for _, probe := range []*core.Probe{pod.Spec.Containers[0].LivenessProbe, pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].StartupProbe} {
		if probe.HTTPGet.Scheme != "HTTPS" || probe.HTTPGet.Port != intstr.FromString("http") {
			t.Errorf("a probe asks without TLS: %+v", probe.HTTPGet)
		}
	}
	if !strings.Contains(o.notes, "LOCKKEEPER_URL=https://locks-lockkeeper.infra\n") || !strings.Contains(o.notes, "exec locks-lockkeeper-0 -- /gateway token create --name ci-1") {
		t.Errorf("the notes:\n%s", o.notes)
	}
	ingress := rendered(t, cases["one gateway behind an ingress"])
	pod, _ = ingress.pod(t)
	if !strings.HasSuffix(settings(pod)["LOCKKEEPER_ALLOWED_HOSTS"], ",locks.example.com") {
		t.Error("the gateway refuses the name of the Ingress")
	}
}

func TestAlertsAndDashboardAreThoseOfTheProjectAndGoByTheJob(t *testing.T) {
	o := rendered(t, cases["everything that can be watched"])
	if o.monitor == nil || o.rule == nil || o.configs["locks-lockkeeper-dashboard"] == nil {
		t.Fatal("something is missing")
	}
	metrics := o.services["locks-lockkeeper-metrics"]
	for name, value := range o.monitor.Spec.Selector.MatchLabels {
		if metrics.Labels[name] != value {
			t.Errorf("the monitor looks for %s=%s", name, value)
		}
	}
	if o.monitor.Spec.Selector.MatchLabels["app.kubernetes.io/component"] != "metrics" || metrics.Labels[o.monitor.Spec.JobLabel] != "lockkeeper" || o.monitor.Spec.Endpoints[0].Port != metrics.Spec.Ports[0].Name {
		t.Errorf("%+v", o.monitor.Spec)
	}
	var ours struct{ Groups []struct{ Rules []any } }
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &ours); err != nil {
		t.Fatal(err)
	}
	if len(o.rule.Spec.Groups) != len(ours.Groups) || len(o.rule.Spec.Groups[0].Rules) != len(ours.Groups[0].Rules) || len(ours.Groups[0].Rules) < 10 {
		t.Errorf("%d rules", len(o.rule.Spec.Groups[0].Rules))
	}
	named := rendered(t, cases["everything that can be watched"]+"nameOverride: doors\n")
	for _, rule := range named.rule.Spec.Groups[0].Rules {
		if strings.Contains(rule.Expr.String(), `job="lockkeeper"`) {
			t.Errorf("%s goes by another job: %s", rule.Alert, rule.Expr.String())
		}
	}
}

func TestNumbersStayWhatTheyAre(t *testing.T) {
	pod, _ := rendered(t, cases["every setting and everything on top"]).pod(t)
	set := settings(pod)
	if set["LOCKKEEPER_MAX_LEASES"] != "1000000" || set["LOCKKEEPER_MAX_RATE_PER_PRINCIPAL"] != "2.5" || set["LOCKKEEPER_WEBHOOK_ALLOW_PRIVATE"] != "true" || set["LOCKKEEPER_LOG_FORMAT"] != "text" {
		t.Errorf("%v", set)
	}
}

func TestWhatIsOpenUnaskedOrContradictsItselfIsRefusedWithAHint(t *testing.T) {
	secure := "access:" + rules + "tls: {secret: t}\n"
	for values, says := range map[string]string{
		"": "no rules of access are given",
		"access: {insecure: true, existingSecret: x}": "several times who may do what",
		"access:" + rules: "must not cross a network without TLS",
		"access:" + rules + "tls: {secret: x, plaintext: true}":                      "tls says several things",
		"access: {insecure: true}\ntls: {plaintext: true}":                           "tls.plaintext is about credentials",
		"access: {insecure: true}\ntls: {clientAuthorities: x}":                      "tls.clientAuthorities needs TLS",
		secure + "zookeeper: {servers: \"zk:2181\"}":                                 "needs an identity toward ZooKeeper",
		secure + "zookeeper: {servers: \"zk:2181\", tls: {clientCertificate: true}}": "needs zookeeper.tls.secret",
		secure + "zookeeper: {identity: {secret: zk}}":                               "no servers",
		secure + "metrics: {serviceMonitor: {enabled: true}}":                        "needs metrics.enabled",
		secure + "ingress: {enabled: true}":                                          "ingress.host is missing",
		secure + "settings: {insecure: true}":                                        "settings must not have insecure",
		secure + "settings: {auth-file: /x}":                                         "settings must not have auth-file",
		secure + "replica: 3":                                                        "replica",
		secure + "replicas: 0":                                                       "replicas",
		secure + "image: {tag: latest}":                                              "tag",
		secure + "persistence: {accessMode: ReadWriteMany}":                          "accessMode",
	} {
		if files, err := render(values); err == nil {
			t.Errorf("taken, with %d files:\n%s", len(files), values)
		} else if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "error: ") && !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("%q says\n%v", values, err)
		}
	}
}

func TestHelmsLinterFindsNothing(t *testing.T) {
	for name, values := range cases {
		given := map[string]any{}
		if err := yaml.Unmarshal([]byte(values), &given); err != nil {
			t.Fatal(err)
		}
		for _, m := range lint.RunAll(chartDir, given, "infra", lint.WithKubeVersion(&common.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"})).Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// What the documentation shows is taken by the chart and by the gateway.
func TestTheValuesInTheDocumentationAreTaken(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/install.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- values -->\n```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for _, block := range blocks {
		o := rendered(t, string(block[1]))
		if !strings.Contains(o.notes, "https://locks-lockkeeper.infra") || o.certificate == nil || o.stateful == nil {
			t.Errorf("%s", o.notes)
		}
	}
	if !strings.Contains(string(page), "helm install locks ") || !strings.Contains(string(page), "exec locks-lockkeeper-0 -- /gateway token create") {
		t.Error("the commands are for other names than the notes")
	}
}

// Each value of values.yaml is in the schema, and does something: a value that the templates do not read is a lie.
func TestEachValueIsRead(t *testing.T) {
	var values map[string]any
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var templates strings.Builder
	names, err := filepath.Glob(filepath.Join(chartDir, "templates/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		templates.Write(data)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !strings.Contains(templates.String(), ".Values."+name) {
			t.Errorf("no template reads %s", name)
		}
	}
}
