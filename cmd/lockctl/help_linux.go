package main

const platformHelp = ""
