package disk

// Sync implements journalFile. macOS' fsync leaves data in the disk's own cache; os.File.Sync is its F_FULLFSYNC, which does
// not.
func (f syncedFile) Sync() error { return f.File.Sync() }
