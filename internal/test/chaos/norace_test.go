//go:build !race

package chaos

const race = false
