// Package supervise runs a command with all its descendants, so that they can be stopped whole and in time, also when the program
// that started them is killed or stands still. lockctl runs commands under a lease with it.
//
// # Two processes
//
// The process that the user starts is the watcher. It starts its own program with the same arguments a second time: the keeper.
// The keeper does the work of the program (it holds the lease), and starts the command. A socket connects the two.
//
//	shell ── watcher ── keeper ── command ── its children
//
// The watcher passes signals on, stops and goes on with the shell's job control, and ends as the keeper ends. The keeper tells it
// by when the descendants must be gone (KillBy). Each of the two makes good what the other one cannot do any more:
//
//   - The watcher dies, by SIGKILL too: the socket closes. The keeper stops the command and ends in good order.
//   - The watcher stands still (SIGSTOP): nothing depends on it.
//   - The keeper dies: the kernel kills the command with it. Its other descendants become the watcher's, which kills them.
//   - The keeper stands still: when KillBy has passed, the watcher kills it with all descendants.
//
// # Descendants
//
// Keeper and watcher are subreapers (PR_SET_CHILD_SUBREAPER): a descendant that daemonizes becomes their child, and stays in their
// sight. Kill stops (SIGSTOP) all descendants first, again and again until there is no new one, so that none of them can fork or
// act on another one's death. Then it kills them, and reaps. It is done when wait4 says that no child is left. Where a cgroup of
// version 2 can be made, the command begins in one of its own, and cgroup.kill kills what is in it at once.
//
// Each signal goes to a pidfd whose process is still a descendant, never to a number that another process may have by now.
//
// # What it cannot do
//
//   - Without the /proc of its own PID namespace it sees no descendants, and refuses to run.
//   - Processes that others start for the command (systemd-run, at, a container's daemon) are no descendants.
//   - A descendant with another user's rights (sudo) takes no signal. Kill reports it.
//   - A process that hangs in the kernel (state D) ends when the kernel lets it go.
//   - SIGKILL to watcher and keeper in one moment (killall -9) leaves descendants other than the command itself, and these
//     when they have a cgroup of their own, too: nothing is left that could kill them.
//   - SIGSTOP to watcher and keeper, and not to the command, leaves nothing that could stop it.
//   - Outside Linux there are neither subreapers nor parent death signals: what leaves the command's process group is lost sight
//     of, and the command outlives a keeper that is killed until the watcher has seen it.
//
// # Who owns what
//
// A Watcher's goroutine reads the socket and one reaps; Watch owns all else. A Process has one goroutine, bound to its thread
// because the kernel's parent death signal goes by threads, which starts the command and reaps. All of them end with the process.
package supervise
