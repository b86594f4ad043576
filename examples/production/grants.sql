-- What the replicas need of the tables of `a2a-sign database migrate`, and nothing else.
GRANT USAGE ON SCHEMA a2a_trust TO agent;
GRANT SELECT ON a2a_trust.schema_version, a2a_trust.api_key, a2a_trust.api_key_revision TO agent;
GRANT UPDATE (last_used) ON a2a_trust.api_key TO agent;
