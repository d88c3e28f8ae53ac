//go:build !linux

package main

const platformHelp = `

On this system, which is not Linux, a process that leaves the command's process group (a daemon) is not seen and not killed,
and the command is killed a moment after lockctl's second process is.`
