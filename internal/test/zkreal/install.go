package zkreal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// Where Debian's packages put what we run.
const (
	zookeeperJar    = "/usr/share/java/zookeeper.jar"
	simpleLoggerJar = "/usr/share/java/slf4j-simple.jar"
	cliScript       = "/usr/share/zookeeper/bin/zkCli.sh"
)

// ErrNotInstalled is in the error of every function here that needs ZooKeeper where it is not installed.
var ErrNotInstalled = errors.New("ZooKeeper is not installed; run: apt-get update && apt-get install -y --no-install-recommends zookeeper")

// javaBinary finds the JVM, or says how to install it with everything else.
func javaBinary() (string, error) {
	for _, f := range []string{zookeeperJar, simpleLoggerJar} {
		if _, err := os.Stat(f); err != nil {
			return "", fmt.Errorf("%w (missing: %s)", ErrNotInstalled, f)
		}
	}
	// Debian's own first: a newer java earlier in PATH may not be one that this ZooKeeper knows.
	if _, err := os.Stat("/usr/bin/java"); err == nil {
		return "/usr/bin/java", nil
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return "", fmt.Errorf("%w (missing: java)", ErrNotInstalled)
	}
	return java, nil
}
