-- What the checks of SQLite look at: the journal, when this connection writes to the disk, free pages and all pages.
select journal_mode, synchronous, freelist_count, page_count
from pragma_journal_mode, pragma_synchronous, pragma_freelist_count, pragma_page_count
