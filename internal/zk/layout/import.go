package layout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"lockkeeper/internal/zk"
	"lockkeeper/internal/zk/conn"
)

func importUnfinished(cfg *zk.Config) error {
	return &zk.FatalError{Kind: zk.KindImportUnfinished,
		Hint: "wait until gateway import is done; if it failed, repeat it with --replace-partial",
		Err:  fmt.Errorf("an import into %s has not been completed", cfg.Full(cfg.Root))}
}

// refuseImport refuses a root without a version that an import is filling: what it lacks must come from there.
func (o *opener) refuseImport() error {
	stat, err := o.exists(o.cfg, o.cfg.Root+zk.NodeImport)
	if err == nil && stat != nil {
		err = importUnfinished(o.cfg)
	}
	return err
}

// createVersion makes the root usable. The transaction also proves, by creating and deleting its node, that no import
// has begun since refuseImport looked: of an import and a gateway that find the same empty root one alone completes it.
func (o *opener) createVersion() error {
	version := o.cfg.Root + zk.NodeVersion
	if stat, err := o.exists(o.cfg, version); err != nil || stat != nil {
		return err
	}
	data, err := json.Marshal(versionRecord{layoutVersion, oldestReader})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", zk.NodeVersion, err)
	}
	ops := []conn.Op{
		o.c.OpAs(&zk.Op{Kind: zk.OpCreate, Path: version, Data: data}, conn.ReadOnly),
		o.c.OpAs(&zk.Op{Kind: zk.OpCreate, Path: o.cfg.Root + zk.NodeImport}, conn.ReadOnly),
		o.c.Op(&zk.Op{Kind: zk.OpDelete, Path: o.cfg.Root + zk.NodeImport, Version: -1}),
	}
	imports := false
	err = o.c.Retry(o.ctx, conn.ReqMulti, func(ctx context.Context) error {
		a, err := o.c.Transact(ctx, ops)
		if err != nil {
			return err
		}
		imports = a.Refused && a.Culprit > 0 && errors.Is(a.Err, zk.ErrNodeExists)
		return a.Err
	}, func(ctx context.Context) (bool, error) {
		stat, err := o.c.Exists(ctx, version)
		return stat != nil, err
	})
	switch {
	case imports && err != nil:
		return importUnfinished(o.cfg)
	case errors.Is(err, zk.ErrNodeExists): // another gateway was quicker
		return nil
	}
	return err
}
