package zk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

func importUnfinished(cfg *Config) error {
	return &FatalError{Kind: KindImportUnfinished,
		Hint: "wait until gateway import is done; if it failed, repeat it with --replace-partial",
		Err:  fmt.Errorf("an import into %s has not been completed", cfg.full(cfg.Root))}
}

// refuseImport refuses a root without a version that an import is filling: what
// it lacks must come from there.
func (o *opener) refuseImport() error {
	stat, err := o.exists(o.cfg, o.cfg.Root+NodeImport)
	if err == nil && stat != nil {
		err = importUnfinished(o.cfg)
	}
	return err
}

// createVersion makes the root usable. The transaction also proves, by creating
// and deleting its node, that no import has begun since refuseImport looked: of an
// import and a gateway that find the same empty root one alone completes it.
func (o *opener) createVersion() error {
	version := o.cfg.Root + NodeVersion
	if stat, err := o.exists(o.cfg, version); err != nil || stat != nil {
		return err
	}
	data, err := json.Marshal(versionRecord{layoutVersion, oldestReader})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", NodeVersion, err)
	}
	ops := []any{
		o.c.encodeAs(&Op{Kind: OpCreate, Path: version, Data: data}, shown),
		o.c.encodeAs(&Op{Kind: OpCreate, Path: o.cfg.Root + NodeImport}, shown),
		o.c.encode(&Op{Kind: OpDelete, Path: o.cfg.Root + NodeImport, Version: -1}),
	}
	imports := false
	err = o.c.retry(o.ctx, reqMulti, func(ctx context.Context) error {
		a, err := o.c.transact(ctx, ops)
		if err != nil {
			return err
		}
		imports = a.refused && a.culprit > 0 && errors.Is(a.err, ErrNodeExists)
		return a.err
	}, func(ctx context.Context) (bool, error) {
		stat, err := o.c.exists(ctx, version)
		return stat != nil, err
	})
	switch {
	case imports && err != nil:
		return importUnfinished(o.cfg)
	case errors.Is(err, ErrNodeExists): // another gateway was quicker
		return nil
	}
	return err
}
