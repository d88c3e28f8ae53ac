// Package accesslog writes one line for each request, as log/slog would, at a fraction of the cost.
//
// # Promises
//
// A line has the bytes that slog's text or JSON handler would write for the same attributes. Lines come out whole, in the order
// in which they were ended. A request never waits for the log: its line goes into a buffer in memory. A Writer writes what the
// buffer holds in one call, 10 ms after the first line of it came, or when 64 KiB wait. When the process is killed or crashes, the lines of
// the last 10 ms are lost. An orderly end loses none: Run writes what is left.
//
// # Bounds
//
// The buffer takes 4 MiB. When the output is slower than that, or stands still, further lines are dropped and counted. A write
// that fails drops its lines, and counts them too.
//
// # Owners
//
// The goroutine in Run writes. All else happens in the goroutines of the requests, under a mutex that is held while a line is
// copied.
package accesslog
