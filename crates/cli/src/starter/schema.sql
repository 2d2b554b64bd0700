-- An example. These tables are yours; Oncebox keeps its own beside them.
create table if not exists payments (id bigint primary key, invoice_id bigint not null, amount bigint not null);
create table if not exists invoices (id bigint primary key, paid bigint not null);
