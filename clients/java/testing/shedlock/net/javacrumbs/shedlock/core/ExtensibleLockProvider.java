package net.javacrumbs.shedlock.core;

public interface ExtensibleLockProvider extends LockProvider {}
