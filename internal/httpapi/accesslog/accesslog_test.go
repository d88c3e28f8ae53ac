package accesslog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockkeeper/internal/test/assert"
)

var formats = map[string]func(*bytes.Buffer) slog.Handler{
	"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
	"json": func(b *bytes.Buffer) slog.Handler {
		return slog.NewJSONHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				a.Value = slog.StringValue(a.Value.Time().Format("2006-01-02T15:04:05.000Z"))
			}
			return a
		}})
	},
}

// same holds a line against what slog writes.
func same(t *testing.T, level slog.Level, value string, number int, span time.Duration, at time.Time) {
	t.Helper()
	for format, handler := range formats {
		var want, got bytes.Buffer
		r := slog.NewRecord(at.UTC(), level, "request", 0)
		r.AddAttrs(slog.String("part", "http"), slog.String("value", value))
		if value != "" {
			r.AddAttrs(slog.String("given", value))
		}
		r.AddAttrs(slog.Int("number", number), slog.Float64("duration_ms", float64(span.Microseconds())/1000))
		assert.NoError(t, handler(&want).Handle(context.Background(), r))

		w := NewWriter(&got, nil)
		log := &Log{To: w, JSON: format == "json", Part: "http"}
		var line Line
		for range 2 { // a line leaves nothing behind for the next one
			log.Begin(&line, level, "request")
			line.String("value", value)
			line.Given("given", value)
			line.Int("number", number)
			line.Millis("duration_ms", span)
			log.End(&line, at)
		}
		w.flush(nil)
		assert.Equal(t, got.String(), strings.Repeat(want.String(), 2), format)
	}
}

var odd = []string{"", "plain", "two words", "a=b", `"quoted"`, `back\slash`, "line\nbreak", "\t\r\b\f\x00\x1f", "\x7f", "Grüße", "日本", "\u00a0", "\u2028\u2029", "\ufeff",
	"\ufffd", "\xff\xfe broken", "a\xc3", "$(rm -rf /)", "`x`", "😀", strings.Repeat("long ", 2000)}

func TestALineIsWhatSlogWouldWrite(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	for i, value := range odd {
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			same(t, level, value, i-3, time.Duration(i*i*i)*7777*time.Microsecond, time.Unix(1_800_000_000+int64(i), int64(i)*7_654_321).In(zone))
		}
	}
	for _, span := range []time.Duration{0, 1, time.Microsecond, 999 * time.Microsecond, time.Millisecond, 1000 * time.Second, 24 * time.Hour} {
		same(t, slog.LevelInfo, "x", 1<<40, span, time.Unix(0, 999_999_999))
	}
}

func FuzzALineIsWhatSlogWouldWrite(f *testing.F) {
	for _, value := range odd {
		f.Add(value, 7, int64(time.Second), int64(1_800_000_000_000))
	}
	f.Fuzz(func(t *testing.T, value string, number int, span, at int64) {
		const year = 365 * 24 * 3600 * 1000
		same(t, slog.LevelInfo, value, number, time.Duration(max(span, 0)), time.UnixMilli(max(at, 0)%(1000*year)))
	})
}

func TestWhichRequestsGetALine(t *testing.T) {
	for _, c := range []struct {
		which  Which
		least  slog.Level
		level  slog.Level
		failed bool
		want   bool
	}{
		{All, slog.LevelInfo, slog.LevelInfo, false, true},
		{All, slog.LevelInfo, slog.LevelDebug, false, false},
		{All, slog.LevelDebug, slog.LevelDebug, false, true},
		{All, slog.LevelWarn, slog.LevelInfo, true, false},
		{Errors, slog.LevelInfo, slog.LevelInfo, false, false},
		{Errors, slog.LevelInfo, slog.LevelInfo, true, true},
		{Errors, slog.LevelInfo, slog.LevelWarn, true, true},
		{Off, slog.LevelInfo, slog.LevelWarn, true, false},
		{Off, slog.LevelInfo, slog.LevelError, true, true},
	} {
		log := &Log{Level: c.least, Which: c.which}
		assert.Equal(t, log.Wants(c.level, c.failed), c.want, c)
	}
}

// output is where lines go. When held is there, a write waits until it is closed.
type output struct {
	held chan struct{}

	mu     sync.Mutex
	writes []string
	err    error
}

func (o *output) Write(b []byte) (int, error) {
	if o.held != nil {
		<-o.held
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes = append(o.writes, string(b))
	return len(b), o.err
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.writes, "")
}

// running is a log that is written, and what counts its losses.
func running(t *testing.T, o *output) (log *Log, dropped *int, stop func()) {
	dropped = new(int)
	w := NewWriter(o, func(lines int) { *dropped += lines })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Run(ctx) }()
	return &Log{To: w, Part: "http", Which: All}, dropped, func() { cancel(); <-done }
}

func say(log *Log, n int) {
	var line Line
	log.Begin(&line, slog.LevelInfo, "request")
	line.Int("n", n)
	log.End(&line, time.Now())
}

func TestLinesAreWrittenTogetherAndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		log, dropped, stop := running(t, &o)
		defer stop()
		for n := range 3 {
			for i := range 100 {
				say(log, n*100+i)
			}
			time.Sleep(flushAfter)
			synctest.Wait()
			assert.Equal(t, len(o.writes), n+1, "writes")
			assert.Equal(t, strings.Count(o.text(), "\n"), (n+1)*100, "lines")
		}
		assert.Equal(t, *dropped, 0)
		for n, line := range strings.Split(strings.TrimSpace(o.text()), "\n") {
			assert.That(t, strings.HasSuffix(line, " level=INFO msg=request part=http n="+strconv.Itoa(n)), "line %d is %q", n, line)
		}
	})
}

func TestManyLinesAreWrittenWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		log, _, stop := running(t, &o)
		defer stop()
		for range flushAt / 64 {
			say(log, 1)
		}
		began := time.Now()
		synctest.Wait()
		assert.That(t, len(o.text()) >= flushAt && time.Since(began) == 0, "%d bytes were written at once", len(o.text()))
	})
}

func TestAnEndWritesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o output
		log, _, stop := running(t, &o)
		say(log, 1)
		synctest.Wait() // it waits for others
		say(log, 2)
		began := time.Now()
		stop()
		assert.Equal(t, strings.Count(o.text(), "\n"), 2, "lines")
		assert.Equal(t, time.Since(began), 0, "the end waited")
	})
}

func TestAnOutputThatStandsStillLosesLinesAndHoldsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := output{held: make(chan struct{})}
		log, dropped, stop := running(t, &o)
		say(log, 0)
		time.Sleep(flushAfter)
		synctest.Wait() // this line is being written
		n := 1
		for ; *dropped < 1000; n++ {
			say(log, n)
		}
		log.To.mu.Lock()
		assert.That(t, len(log.To.lines) <= mostBuffered && len(log.To.lines) > mostBuffered-100, "%d bytes wait", len(log.To.lines))
		log.To.mu.Unlock()
		close(o.held)
		time.Sleep(2 * flushAfter)
		say(log, n) // there is room again
		stop()
		lines := strings.Split(strings.TrimSpace(o.text()), "\n")
		assert.Equal(t, len(lines)+*dropped, n+1, "lines")
		assert.That(t, strings.HasSuffix(lines[len(lines)-1], " n="+strconv.Itoa(n)), "the last line is %q", lines[len(lines)-1])
	})
}

func TestALineThatCannotBeWrittenIsCounted(t *testing.T) {
	o := output{err: errors.New("disk full")}
	log, dropped, stop := running(t, &o)
	say(log, 1)
	say(log, 2)
	stop()
	assert.Equal(t, *dropped, 2)
}

func BenchmarkLine(b *testing.B) {
	w := NewWriter(new(output), nil)
	log := &Log{To: w, Part: "http", Which: All}
	var line Line
	b.ReportAllocs()
	for b.Loop() {
		log.Begin(&line, slog.LevelInfo, "request")
		line.String("request_id", "0123456789abcdef")
		line.Given("operation", "Acquire")
		line.Given("lease_id", "lk7zeszcneibhyj6bvzox7mltgsjyv2atyozwpj")
		line.Int("status", 201)
		line.Millis("duration_ms", 1234*time.Microsecond)
		log.End(&line, time.Now())
		w.mu.Lock()
		w.lines, w.count = w.lines[:0], 0
		w.mu.Unlock()
	}
}
