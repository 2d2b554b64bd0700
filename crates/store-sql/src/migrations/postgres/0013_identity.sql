-- How a consumer makes the keys of its messages, as JSON: a start that makes others is refused, or bridges the change. Null: it
-- has not run since this is kept. Versions before neither read nor write it.
alter table {schema}.consumers add column identity text;
