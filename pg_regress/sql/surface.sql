-- What users may rely on. A change here is a change of the contract.
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;

-- Functions: name(arguments) -> result; volatility, parallel safety, strictness, security, settings.
SELECT p.proname || '(' || pg_get_function_arguments(p.oid) || ')' || E'\n    -> ' || pg_get_function_result(p.oid) || E'\n    '
       || concat_ws(', ',
              CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END,
              CASE p.proparallel WHEN 's' THEN 'parallel safe' WHEN 'r' THEN 'parallel restricted' END,
              CASE WHEN p.proisstrict THEN 'strict' END,
              CASE WHEN p.prosecdef THEN 'security definer' ELSE 'security invoker' END,
              array_to_string(p.proconfig, ' '))
  FROM pg_proc p
 WHERE p.pronamespace = 'postroom'::regnamespace
 ORDER BY p.proname COLLATE "C", pg_get_function_arguments(p.oid) COLLATE "C";

-- Tables and views: their columns in order.
SELECT c.relkind::text || ' ' || c.relname || ': ' || string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN '!' ELSE '' END, ', ' ORDER BY a.attnum)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'v', 'S')
 GROUP BY c.relkind, c.relname
 ORDER BY c.relkind, c.relname COLLATE "C";
SELECT 'i ' || i.relname || ' on ' || t.relname || CASE WHEN x.indisunique THEN ' unique' ELSE '' END
  FROM pg_index x
  JOIN pg_class i ON i.oid = x.indexrelid
  JOIN pg_class t ON t.oid = x.indrelid
 WHERE t.relnamespace = 'postroom'::regnamespace
 ORDER BY i.relname COLLATE "C";

-- Settings and their defaults.
SELECT postroom.version() IS NOT NULL;
SELECT name || ' = ' || boot_val || COALESCE(' ' || unit, '') || ' (' || context || ')'
  FROM pg_settings WHERE name LIKE 'postroom.%' ORDER BY name COLLATE "C";

-- What pg_dump takes along.
SELECT c.oid::regclass || COALESCE(' ' || NULLIF(d.condition, ''), '')
  FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS d (oid, condition)
  JOIN pg_class c ON c.oid = d.oid
 WHERE e.extname = 'postroom' ORDER BY c.relname COLLATE "C";

-- The following are all empty.
-- Members outside the schema:
SELECT o.type, o.identity
  FROM pg_depend d, pg_identify_object(d.classid, d.objid, d.objsubid) AS o
 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'postroom')
   AND o.schema IS DISTINCT FROM 'postroom' AND o.identity <> 'postroom';
-- Things in the schema that are no members:
SELECT 'function', p.oid::regprocedure::text FROM pg_proc p
 WHERE p.pronamespace = 'postroom'::regnamespace
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e');
-- What everybody may do:
SELECT 'execute', p.oid::regprocedure::text FROM pg_proc p
 WHERE p.pronamespace = 'postroom'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE');
SELECT 'table', c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'm')
   AND has_table_privilege('public', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER');
SELECT 'sequence', c.oid::regclass::text FROM pg_class c
 WHERE c.relnamespace = 'postroom'::regnamespace AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege('public', c.oid, 'USAGE, SELECT, UPDATE') END;
SELECT 'create in the schema' WHERE has_schema_privilege('public', 'postroom', 'CREATE');
-- Definers' functions whose names are found through the caller's path:
SELECT 'search_path', p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
 WHERE p.pronamespace = 'postroom'::regnamespace AND p.prosecdef AND l.lanname NOT IN ('c', 'internal')
   AND NOT COALESCE(p.proconfig @> '{"search_path=pg_catalog, pg_temp"}', false);
