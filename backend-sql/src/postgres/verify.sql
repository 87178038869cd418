-- Checks a lock in the transaction that calls it, which fails if the lock is not held, and otherwise keeps it from changing hands.
-- With the rights of its owner, so that who calls it can read no owner id. All names in it have their schema. Who may call it can
-- also keep a lock from changing hands, so it is for nobody else:
--     GRANT EXECUTE ON FUNCTION {verify}(text, bigint, text) TO the roles of your scripts
CREATE OR REPLACE FUNCTION {verify}(lock_name text, lock_token bigint, lock_hold text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
DECLARE lock_owner uuid;
BEGIN
    -- Not the token alone: after a failover that has lost grants, two holders can have the same. The id of a hold is made from its owner.
    FOR lock_owner IN SELECT owner FROM {locks} WHERE name = lock_name AND token = lock_token
        UNION ALL SELECT owner FROM {members} WHERE name = lock_name AND token = lock_token
    LOOP
        CONTINUE WHEN left(encode(sha256(uuid_send(lock_owner)), 'hex'), 32) IS DISTINCT FROM lower(lock_hold);
        IF (VERIFY_ALONE) IS NOT NULL OR (VERIFY_TOGETHER) IS NOT NULL THEN
            RETURN;
        END IF;
    END LOOP;
    RAISE EXCEPTION 'the lock % is not held any more', quote_literal(lock_name);
END
$body$;
REVOKE EXECUTE ON FUNCTION {verify}(text, bigint, text) FROM PUBLIC;
