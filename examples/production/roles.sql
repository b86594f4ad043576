-- The roles, and their database. psql reads the passwords from the files of make-files.sh.
\set owner `cat secrets/owner`
\set agent `cat secrets/agent`
\set backup `cat secrets/backup`
CREATE ROLE owner LOGIN PASSWORD :'owner';
CREATE ROLE agent LOGIN PASSWORD :'agent';
CREATE ROLE backup LOGIN REPLICATION PASSWORD :'backup';
CREATE DATABASE agents OWNER owner;
