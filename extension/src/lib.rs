//! postroom inside the server.

::pgrx::pg_module_magic!();

#[pgrx::pg_extern(immutable, parallel_safe, sql = "
CREATE SCHEMA postroom;
CREATE FUNCTION postroom.version() RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
")]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["fsync = off"]
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    #[pg_test]
    fn version_is_the_crates() {
        let version = Spi::get_one::<String>("SELECT postroom.version()").unwrap().unwrap();
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
    }
}
