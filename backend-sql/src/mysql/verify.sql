-- Checks a lock in the transaction that calls it, which fails if the lock is not held, and otherwise keeps it from changing hands.
-- With the rights of its owner, so that who calls it can read no owner id. Only the users that need it are to call it:
--     GRANT EXECUTE ON PROCEDURE {verify} TO the users of your scripts
DROP PROCEDURE IF EXISTS {verify};
DELIMITER //
CREATE PROCEDURE {verify}(lock_name VARBINARY(512), lock_token BIGINT, lock_hold VARBINARY(32)) SQL SECURITY DEFINER
BEGIN
    DECLARE lock_owner BINARY(16);
    DECLARE lock_found INT;
    DECLARE lock_state TEXT DEFAULT '';
    -- An XA transaction gives up the lock at its XA PREPARE. This one always fails, and says whether it is one.
    BEGIN
        DECLARE CONTINUE HANDLER FOR SQLEXCEPTION GET DIAGNOSTICS CONDITION 1 lock_state = MESSAGE_TEXT;
        XA PREPARE 'lockwell';
    END;
    IF LOCATE('ACTIVE', lock_state) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'an XA transaction does not keep a lock';
    END IF;
    -- Not the token alone: after a failover that has lost grants, two holders can have the same. The id of a hold is made from its owner.
    SET lock_owner = (SELECT h.owner FROM (SELECT owner FROM {locks} WHERE name = lock_name AND token = lock_token
        UNION ALL SELECT owner FROM {members} WHERE name = lock_name AND token = lock_token) AS h
        WHERE CAST(LEFT(SHA2(h.owner, 256), 32) AS BINARY) = lock_hold LIMIT 1);
    SET lock_found = (VERIFY_ALONE);
    IF lock_found IS NULL THEN
        SET lock_found = (VERIFY_TOGETHER);
    END IF;
    IF lock_found IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the lock is not held any more';
    END IF;
END//
DELIMITER ;
