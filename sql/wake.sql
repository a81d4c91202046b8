-- A worker that sleeps is woken by whoever brings it work. The mark is no row: it is a lock of the
-- listening session and ends with it.

-- Until when the instance may sleep, if the claim that follows gives nothing; a moment that has passed
-- says: go on polling. Without a consumer it is the outbox.
CREATE FUNCTION postroom.mark_idle(instance_id uuid, consumer_id text DEFAULT NULL) RETURNS timestamptz
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'mark_idle_wrapper';

CREATE FUNCTION postroom.mark_busy(instance_id uuid, consumer_id text DEFAULT NULL) RETURNS void
    VOLATILE SECURITY DEFINER LANGUAGE c AS 'MODULE_PATHNAME', 'mark_busy_wrapper';
