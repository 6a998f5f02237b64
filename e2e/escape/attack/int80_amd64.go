//go:build linux

package main

// int80 makes a system call without arguments by the 32-bit way.
func int80(number uint32) int32
