-- A copy is complete: whoever opens the store can work on it. No number of the source is given again. Who runs the store may
-- not set its sequences; this alone does, and forwards only.
CREATE OR REPLACE FUNCTION sickbay.complete_copy(p_turns bigint, p_last_number bigint, p_last_dead bigint, p_epoch bigint)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE sickbay.copy SET complete = true WHERE NOT complete AND turns = p_turns;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM setval('sickbay.message_number', p_last_number) FROM sickbay.message_number
        WHERE p_last_number > CASE WHEN is_called THEN last_value ELSE 0 END;
    PERFORM setval('sickbay.dead_number', p_last_dead) FROM sickbay.dead_number
        WHERE p_last_dead > CASE WHEN is_called THEN last_value ELSE 0 END;
    UPDATE sickbay.meta SET value = greatest(value, p_epoch) WHERE name = 'epoch';
    RETURN true;
END $$;
