package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Bounds of a store.
const (
	fileName = "history.db"
	// maxAside is how many damaged files may stand aside. At that number no new store begins.
	maxAside = 3
	pageSize = 4096
	// cacheKiB is what the writer keeps in memory of the file, and each reader a quarter of it.
	cacheKiB = 2 << 10
	readers  = 2
	// readersRest is how long a reader that reads nothing keeps what it has read.
	readersRest = time.Minute
	// walBytes is what the log before the file is cut to when it was longer.
	walBytes = 16 << 20
)

// schemaVersion is the form of the store. One of another form is set aside like a damaged one.
const schemaVersion = 1

// A row's id is its begin in microseconds, moved on by some where two rows would have the same: the order of the ids is the
// order of the begins, and an index by lock is one by lock and begin.
//
// long is set of what has not ended or lasted longSpan: to find what overlaps a moment, only these rows have to be looked at
// that began long before it.
const schema = `
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, a TEXT NOT NULL, b TEXT NOT NULL, seen INTEGER NOT NULL);
CREATE UNIQUE INDEX names_text ON names(kind, a, b);
CREATE INDEX names_host ON names(b) WHERE kind = 2 AND b <> '';
CREATE TABLE rows(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, place INTEGER NOT NULL, owner INTEGER, principal INTEGER, gateway INTEGER,
  program INTEGER, mark TEXT, mode INTEGER, permits INTEGER, token INTEGER, early INTEGER, span INTEGER, late INTEGER, waited INTEGER,
  reason INTEGER, n INTEGER, mean INTEGER, extra TEXT, long INTEGER NOT NULL);
CREATE INDEX rows_place ON rows(place);
CREATE INDEX rows_owner ON rows(owner) WHERE owner IS NOT NULL;
CREATE INDEX rows_early ON rows(early) WHERE early IS NOT NULL;
CREATE INDEX rows_open ON rows(mark) WHERE span IS NULL;
CREATE INDEX long_place ON rows(place) WHERE long = 1;
CREATE INDEX long_owner ON rows(owner) WHERE long = 1 AND owner IS NOT NULL;
CREATE INDEX long_all ON rows(long) WHERE long = 1;
CREATE TABLE gaps(id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, cause TEXT NOT NULL);
`

// longSpan is what a long row has lasted.
const longSpan = time.Minute

// Errors of opening.
var (
	errDamaged  = errors.New("the file is damaged")
	errInUse    = errors.New("another process has it open")
	errAside    = fmt.Errorf("%d damaged files stand aside; look at them, and remove them", maxAside)
	errNewerOne = fmt.Errorf("it has another form than %d", schemaVersion)
)

// store is an open file, or a store in memory.
type store struct {
	path   string // "" in memory
	lock   *os.File
	db     *sql.DB // of one connection
	write  *sql.Conn
	read   *sql.DB
	size   int64     // at most, in bytes
	aside  string    // where the file went that was found
	found  error     // what was wrong with that
	fresh  bool      // it was made just now
	alive  time.Time // until when the process before this one wrote; zero for a new store
	closed atomic.Bool
}

// dsn is how the driver opens the store. params are pragmas.
func dsn(path string, memory string, params ...string) string {
	q := url.Values{"_txlock": {"immediate"}}
	for _, p := range params {
		q.Add("_pragma", p)
	}
	if path == "" {
		q.Set("vfs", "memdb")
		return "file:/" + memory + "?" + q.Encode()
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// memories tells the stores in memory of one process apart: tests have several.
var memories atomic.Int64

// openStore opens the store in dir, and makes it when there is none; dir "" is memory. A damaged one is moved aside, and the new
// store says so.
func openStore(ctx context.Context, dir string, size int64) (*store, error) {
	if dir == "" {
		s := &store{size: size}
		return s, s.connect(ctx, fmt.Sprintf("history-%d", memories.Add(1)))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &store{path: filepath.Join(dir, fileName), size: size}
	if err := s.claim(dir); err != nil {
		return nil, err
	}
	err := s.connect(ctx, "")
	if errors.Is(err, errDamaged) || errors.Is(err, errNewerOne) {
		s.disconnect()
		s.found = err
		if s.aside, err = setAside(s.path); err == nil {
			err = s.connect(ctx, "")
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// claim keeps other processes from the file. The kernel lets go of it with the process.
func (s *store) claim(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errInUse
		}
		return err
	}
	s.lock = f
	return nil
}

// connect opens the connections and the tables. What it finds of an earlier process is looked at once, whole.
func (s *store) connect(ctx context.Context, memory string) error {
	params := []string{"busy_timeout(5000)", fmt.Sprintf("cache_size(-%d)", cacheKiB), "temp_store(MEMORY)"}
	if s.path != "" {
		f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite gives its log the mode of the file
		if err != nil {
			return err
		}
		_ = f.Close()
		params = append(params, "journal_mode(WAL)", "synchronous(NORMAL)", fmt.Sprintf("journal_size_limit(%d)", walBytes))
	}
	var err error
	if s.db, err = sql.Open("sqlite", dsn(s.path, memory, params...)); err != nil {
		return err
	}
	if s.write, err = s.db.Conn(ctx); err != nil {
		return damage(err)
	}
	if err := s.begin(ctx); err != nil {
		return damage(err)
	}
	s.read, err = sql.Open("sqlite", dsn(s.path, memory, "query_only(1)", "busy_timeout(1000)", fmt.Sprintf("cache_size(-%d)", cacheKiB/4), "temp_store(MEMORY)"))
	if err == nil {
		s.read.SetMaxOpenConns(readers)
		s.read.SetConnMaxIdleTime(readersRest)
	}
	return err
}

// begin checks what is there, or makes the tables.
func (s *store) begin(ctx context.Context) error {
	var version int64
	var check string
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version == 0 {
		if err := s.create(ctx); err != nil {
			return err
		}
	} else if version != schemaVersion {
		return errNewerOne
	}
	if _, err := s.write.ExecContext(ctx, fmt.Sprintf("PRAGMA max_page_count = %d", s.size/pageSize*11/10+64)); err != nil {
		return err
	}
	if s.fresh {
		return nil
	}
	if err := s.write.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&check); err != nil {
		return err
	}
	if check != "ok" {
		return fmt.Errorf("%w: %s", errDamaged, check)
	}
	at, err := s.meta(ctx, "alive")
	if at != 0 {
		s.alive = time.UnixMicro(at)
	}
	return err
}

// create makes the tables, all or none. A file may have some of them already, without a version: tables of
// this store without a row are made anew. Anything else in a file without a version is not ours.
func (s *store) create(ctx context.Context) error {
	var tables int64
	if err := s.write.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table'").Scan(&tables); err != nil {
		return err
	}
	drop := ""
	for _, name := range []string{"meta", "names", "rows", "gaps"} {
		var there, rows int64
		if err := s.write.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?", name).Scan(&there); err != nil {
			return err
		}
		if there == 0 {
			continue
		}
		if err := s.write.QueryRowContext(ctx, "SELECT count(*) FROM "+name).Scan(&rows); err != nil {
			return err
		}
		if rows != 0 {
			return errNewerOne
		}
		tables--
		drop += "DROP TABLE " + name + ";"
	}
	if tables != 0 {
		return errNewerOne
	}
	s.fresh = true
	// An error leaves the transaction to the end of the connection, which rolls it back.
	_, err := s.write.ExecContext(ctx, fmt.Sprintf("BEGIN IMMEDIATE;%s%sPRAGMA user_version = %d;COMMIT;", drop, schema, schemaVersion))
	return err
}

// meta is a number of the store itself, 0 when it is not there.
func (s *store) meta(ctx context.Context, name string) (value int64, err error) {
	err = s.write.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = ?", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return value, err
}

func (s *store) disconnect() {
	// Their errors say nothing new: each batch was committed, or was not.
	if s.read != nil {
		_ = s.read.Close()
	}
	if s.write != nil {
		_ = s.write.Close()
	}
	if s.db != nil {
		_ = s.db.Close()
	}
	s.read, s.write, s.db = nil, nil, nil
}

func (s *store) close() {
	if s.closed.Swap(true) {
		return
	}
	s.disconnect()
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// damage says of an error whether the file is damaged.
func damage(err error) error {
	if code := codeOf(err); code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// codeOf is SQLite's code of an error, 0 for none.
func codeOf(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// setAside renames a damaged file, and what belongs to it.
func setAside(path string) (to string, err error) {
	there, err := os.ReadDir(filepath.Dir(path)) // a pattern would take the directory's name for a part of it
	if err != nil {
		return "", err
	}
	n := 0
	for _, entry := range there {
		if name := entry.Name(); strings.HasPrefix(name, filepath.Base(path)+".damaged-") && !strings.HasSuffix(name, "-wal") && !strings.HasSuffix(name, "-shm") {
			n++
		}
	}
	if n >= maxAside {
		return "", errAside
	}
	to = fmt.Sprintf("%s.damaged-%s", path, time.Now().UTC().Format("20060102T150405.000"))
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return to, nil
}
