"""The PostgreSQL store: decisions are made by functions in the database, in the `.sql` files beside this one."""
