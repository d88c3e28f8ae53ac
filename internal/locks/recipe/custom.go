package recipe

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Limits of what is configured for the custom dialect, in bytes.
const (
	// maxAround bounds what stands before and behind the id. It is less than an id:
	// so no template contains one, and in a name of ours the id is found in one way.
	maxAround = 32
	// MaxPattern bounds the pattern of foreign shared names.
	MaxPattern = 200
)

const placeholder = "{id}"

// template is a contender's name: what stands before and behind its id.
type template struct{ start, end string }

func (t template) String() string { return t.start + placeholder + t.end }

// custom are the names of a home-made recipe.
type custom struct {
	exclusive, shared template       // shared may be missing
	foreignShared     *regexp.Regexp // nil: none is shared
}

func (c *custom) words() (exclusive, shared, foreignShared string) {
	exclusive = c.exclusive.String()
	if c.shared != (template{}) {
		shared = c.shared.String()
	}
	if c.foreignShared != nil {
		foreignShared = c.foreignShared.String()
	}
	return exclusive, shared, foreignShared
}

func (c *custom) String() string {
	exclusive, shared, foreignShared := c.words()
	s := "exclusive=" + exclusive
	if shared != "" {
		s += " shared=" + shared
	}
	if foreignShared != "" {
		s += " foreign-shared=" + foreignShared
	}
	return s
}

func (c *custom) template(m Mode) template {
	if m == Shared {
		return c.shared
	}
	return c.exclusive
}

func (c *custom) foreignMode(prefix string) (mode Mode, permits int32) {
	switch {
	case strings.HasSuffix(prefix, semaphoreBase):
		return Permit, 1
	case c.foreignShared != nil && c.foreignShared.MatchString(prefix):
		return Shared, 0
	}
	return Exclusive, 0
}

// parseOurs reads a prefix that Naming.Prefix wrote. It refuses everything else.
//
// There is one way to read it. An id is a run of a-z, 0-9 and dots that is longer
// than all of a template, and in a template something else stands beside it. So two
// templates that fit one name have the same ids in the same place, hence
// are the same, and parseCustom refuses that.
func (c *custom) parseOurs(prefix string) (out Contender, ok bool) {
	out = Contender{Ours: true, Version: version, Member: 1, Members: 1, Group: 1, Groups: 1, Form: FormCustom}
	id := prefix
	switch {
	case cut(&id, c.exclusive.start, c.exclusive.end) && out.parseID(id):
		return out, true
	case c.shared == (template{}):
		return out, false
	}
	out = Contender{Ours: true, Version: version, Member: 1, Members: 1, Group: 1, Groups: 1, Form: FormCustom, Mode: Shared}
	id = prefix
	return out, cut(&id, c.shared.start, c.shared.end) && out.parseID(id)
}

// parseCustom reads what stands behind the name of the custom dialect.
func parseCustom(s string) (*custom, error) {
	given := map[string]string{}
	for _, field := range strings.Fields(s) {
		key, value, ok := strings.Cut(field, "=")
		switch _, twice := given[key]; {
		case !ok || key != "exclusive" && key != "shared" && key != "foreign-shared":
			return nil, fmt.Errorf("%q is none of exclusive=..., shared=... and foreign-shared=..., the parts of a custom dialect", field)
		case twice:
			return nil, fmt.Errorf("%s= is there twice", key)
		case value == "":
			return nil, fmt.Errorf("%s= has nothing behind it", key)
		}
		given[key] = value
	}
	if given["exclusive"] == "" {
		return nil, errors.New("it needs the names of its exclusive contenders, for example custom exclusive={id}-W-")
	}
	c := &custom{}
	var err error
	if c.exclusive, err = parseTemplate("exclusive", given["exclusive"], Exclusive); err != nil {
		return nil, err
	}
	if given["shared"] != "" {
		if c.shared, err = parseTemplate("shared", given["shared"], Shared); err != nil {
			return nil, err
		}
		if c.shared == c.exclusive {
			return nil, errors.New("exclusive= and shared= must differ: no client could tell readers from writers")
		}
		if given["foreign-shared"] == "" {
			given["foreign-shared"] = c.shared.lookalikes()
		}
	}
	if pattern := given["foreign-shared"]; pattern != "" {
		if c.foreignShared, err = parsePattern(pattern); err != nil {
			return nil, err
		}
	}
	if err = c.checkPattern(); err != nil {
		return nil, err
	}
	return c, nil
}

// lookalikes is a pattern for the names of others that look like the template's.
func (t template) lookalikes() string {
	if t.start == "" {
		return regexp.QuoteMeta(t.end) + "$"
	}
	return "^" + regexp.QuoteMeta(t.start) + ".+" + regexp.QuoteMeta(t.end) + "$"
}

func parsePattern(s string) (*regexp.Regexp, error) {
	if len(s) > MaxPattern {
		return nil, fmt.Errorf("foreign-shared= has at most %d bytes, this one has %d", MaxPattern, len(s))
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, fmt.Errorf("foreign-shared= is no regular expression: %w", err)
	}
	return re, nil
}

// checkPattern checks that the names of another fleet with the same configuration would be read correctly:
// the pattern makes its shared contenders shared, and its exclusive ones exclusive.
func (c *custom) checkPattern() error {
	if c.foreignShared == nil {
		return nil
	}
	for _, id := range sampleIDs {
		if name := c.exclusive.start + id + c.exclusive.end; c.foreignShared.MatchString(name) {
			return fmt.Errorf("foreign-shared=%s fits a name of exclusive contenders, %s", c.foreignShared, name)
		}
		if name := c.shared.start + id + c.shared.end; c.shared != (template{}) && !c.foreignShared.MatchString(name) {
			return fmt.Errorf("foreign-shared=%s does not fit a name of shared contenders, %s: it is matched against names without their number", c.foreignShared, name)
		}
	}
	return nil
}

// sampleIDs are ids as they stand in names.
var sampleIDs = [...]string{
	"v1." + Tag + "abcdefghijklmnopqrstuvwxyz234567abcde",
	"v1." + Tag + "77777777ijklmnopqrstuvwxyz234567aaaaa.e",
	"v1." + Tag + "zyxwvutsrqponmlkjihgeabcdefghij234567.e.g12of64.f9223372036854775807",
}

// parseTemplate reads and checks one template. The rules, and why:
//
//   - {id} stands in it once, with something beside it that no id contains: see
//     parseOurs.
//   - It begins with a letter, an underscore or {id}: Curator sorts all names of a
//     directory, and waits for ever behind one that sorts before digits.
//   - It ends in one dash or in underscores, and no dash after one: that is where
//     ZooKeeper's number has one reading (Number).
//   - No known program reads it as another mode.
func parseTemplate(key, s string, mode Mode) (template, error) {
	wrong := func(format string, args ...any) (template, error) {
		return template{}, fmt.Errorf("%s=%s %s", key, s, fmt.Sprintf(format, args...))
	}
	start, end, _ := strings.Cut(s, placeholder)
	t := template{start, end}
	for i := range len(start) + len(end) {
		if c := (start + end)[i]; !isAlphanumeric(c) && !isLockNameMark(c) && strings.IndexByte("#!$%&|", c) < 0 {
			return wrong("must have %s once, and besides it A-Z a-z 0-9 . _ ~ @ : = + - # ! $ %% & |, not %q", placeholder, c)
		}
	}
	switch {
	case !strings.Contains(s, placeholder):
		return wrong("must have %s in it", placeholder)
	case len(start) > maxAround || len(end) > maxAround:
		return wrong("has more than %d characters before or behind %s", maxAround, placeholder)
	case start != "" && !isLetter(start[0]) && start[0] != '_':
		return wrong("must begin with a letter, an underscore or %s: Curator would wait for ever behind a name that sorts before its own", placeholder)
	case start != "" && isIDCharacter(start[len(start)-1]) || end != "" && isIDCharacter(end[0]):
		return wrong("must have something beside %s that an id has not: no small letter, digit or dot", placeholder)
	case !strings.HasSuffix(end, "-") && !strings.HasSuffix(end, "_"):
		return wrong("must end in a dash or an underscore, before ZooKeeper's number")
	case strings.HasSuffix(end, "--") || strings.HasSuffix(end, "_-"):
		return wrong("must not end in a dash after a dash or an underscore: it would be taken for the number's sign")
	}
	for _, id := range sampleIDs {
		name := start + id + end
		for _, base := range curatorBases {
			if at := strings.LastIndex(name, base); at >= 0 {
				if rest := name[at+len(base):]; rest != "" && !isLetter(rest[0]) && rest[0] != '_' {
					return wrong("has %q behind %q, where Curator looks for the number: it would wait for ever", rest[:1], base)
				}
			}
		}
		if other, is := readElsewhere(name, mode); is {
			return wrong("would be taken for a %s contender by other programs", other)
		}
	}
	return t, nil
}

// readElsewhere returns the meaning of a name to known programs when it differs from the mode.
func readElsewhere(prefix string, mode Mode) (other Mode, is bool) {
	foreign, _ := foreignMode(prefix)
	ours, known := parseOurs(prefix)
	switch {
	case known && ours.Mode != mode:
		return ours.Mode, true
	case foreign != Exclusive && foreign != mode:
		return foreign, true
	case mode == Shared && (strings.HasPrefix(prefix, "write-") || strings.HasSuffix(prefix, "__WRIT__") || strings.HasSuffix(prefix, "__lock__")):
		return Exclusive, true
	}
	return mode, false
}

// curatorBases are what Curator looks for in a name: it sorts by what follows.
var curatorBases = [...]string{"lock-", "__WRIT__", "__READ__", semaphoreBase, "latch-"}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isAlphanumeric(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

// isIDCharacter reports whether ids in names of any version may have the character.
func isIDCharacter(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' }
