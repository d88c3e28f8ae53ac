/**
 * Stand-ins for the types of ShedLock that the provider uses, written for this project's tests: ShedLock itself comes from Maven Central, which
 * tests do not ask. They have the names and signatures of ShedLock 4 to 7, and nothing else of it.
 */
package net.javacrumbs.shedlock.core;
