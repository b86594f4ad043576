"""Presets for identity providers: a verifier for the access tokens of each, in one line."""

from a2a_trust.auth.providers import auth0 as auth0
from a2a_trust.auth.providers import authentik as authentik
from a2a_trust.auth.providers import cognito as cognito
from a2a_trust.auth.providers import entra_id as entra_id
from a2a_trust.auth.providers import github_actions as github_actions
from a2a_trust.auth.providers import keycloak as keycloak
from a2a_trust.auth.providers import keycloak_introspection as keycloak_introspection
from a2a_trust.auth.providers import kubernetes as kubernetes
from a2a_trust.auth.providers import okta as okta
from a2a_trust.auth.providers import ory_hydra as ory_hydra
from a2a_trust.auth.providers import spiffe as spiffe
from a2a_trust.auth.providers import zitadel as zitadel
