package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// settings is a configuration file: a key per flag.
type settings map[string]any

// configFile reads the file that --config or LOCKKEEPER_CONFIG names; nil
// without one.
func configFile(args []string, getenv func(string) string) (settings, error) {
	path := getenv("LOCKKEEPER_CONFIG")
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--config="); ok {
			path = value
		} else if arg == "--config" && i+1 < len(args) {
			path = args[i+1]
		}
	}
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("give an existing file with --config", "reading the configuration: %w", err)
	}
	defer f.Close()
	var s settings
	d := yaml.NewDecoder(f)
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return nil, usage("the file has a key per flag, for example  listen: 127.0.0.1:8080", "reading the configuration %s: %w", path, err)
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, usage("nothing would be read of what follows a line ---", "the configuration %s has more than one document", path)
	}
	return s, nil
}

// Validate implements kong.Resolver: a key that is no flag is an error.
func (s settings) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, flag := range app.Flags {
		known[flag.Name] = true
	}
	for key := range s {
		if !known[key] || key == "help" || key == "version" || key == "config" {
			return usage("gateway --help lists the flags; the keys are named like them", "the configuration file has an unknown key %q", key)
		}
	}
	return nil
}

// Resolve implements kong.Resolver. A variable in the environment beats the file.
func (s settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	switch v := s[flag.Name].(type) {
	case nil:
		return nil, nil
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		return kong.JoinEscaped(parts, ','), nil
	default:
		return fmt.Sprint(v), nil
	}
}

// zkFlag is --zk, on which it depends whether there is a data directory.
func zkFlag(parser *kong.Kong) *kong.Flag {
	for _, flag := range parser.Model.Flags {
		if flag.Name == "zk" {
			return flag
		}
	}
	panic("there is no --zk")
}

// printConfig writes the settings in force as a configuration file. None of
// them is a secret: those are in files of their own.
func printConfig(w io.Writer, parser *kong.Kong, parsed *kong.Context) error {
	for _, flag := range parser.Model.Flags {
		if flag.Name == "help" || flag.Name == "version" || flag.Name == "config" {
			continue
		}
		value := parsed.FlagValue(flag)
		if d, ok := value.(fmt.Stringer); ok {
			value = d.String()
		}
		if flag.Name == "zk" && value == "" {
			continue // an empty one is refused
		}
		if flag.Name == "data-dir" && value == "" && parsed.FlagValue(zkFlag(parser)) == "" {
			value = "./" + defaultDataDir
		}
		line, err := yaml.Marshal(map[string]any{flag.Name: value})
		if err != nil {
			return fmt.Errorf("printing --%s: %w", flag.Name, err)
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}
