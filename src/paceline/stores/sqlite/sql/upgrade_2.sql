-- Starts that are open until their handlers have begun.

ALTER TABLE paceline_meter ADD COLUMN open INTEGER NOT NULL DEFAULT 0;
ALTER TABLE paceline_permit ADD COLUMN gate INTEGER NOT NULL DEFAULT 0;
