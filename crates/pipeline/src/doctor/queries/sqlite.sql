-- What the checks of SQLite look at: the journal, free pages and all pages.
select journal_mode, freelist_count, page_count
from pragma_journal_mode, pragma_freelist_count, pragma_page_count
