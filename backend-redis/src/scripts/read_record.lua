-- Reads the record of a lock. Changes nothing.
--
-- KEYS  the record
-- Answer: HOLD:NUMBER:TOKEN:VALUE, or '' if there is none

return redis.call('GET', KEYS[1]) or ''
