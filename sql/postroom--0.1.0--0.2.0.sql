-- From 0.1.0 to 0.2.0. What a fresh 0.2.0 has and a 0.1.0 has not, room by room. The schema's own words
-- for each stand in the file of the room; here is only what takes one there.
-- Hot functions keep serving the schema of 0.1.0 until this script has run.

-- instance

-- lane

-- claim

-- wake

-- outbox

-- inbox

-- retry

-- event

-- position

-- batch

-- upkeep

-- view

-- finish
REVOKE ALL ON ALL TABLES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA postroom FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA postroom FROM PUBLIC;
