"""Presets for identity providers: a verifier for the access tokens of each, in one line."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.auth.providers import auth0 as auth0, authentik as authentik, cognito as cognito
    from a2a_trust.auth.providers import entra_id as entra_id, github_actions as github_actions, keycloak as keycloak
    from a2a_trust.auth.providers import keycloak_introspection as keycloak_introspection, kubernetes as kubernetes
    from a2a_trust.auth.providers import okta as okta, ory_hydra as ory_hydra, spiffe as spiffe, zitadel as zitadel
else:
    __getattr__, __dir__ = lazy(__name__, {
        "auth.providers": "auth0 authentik cognito entra_id github_actions keycloak "
        "keycloak_introspection kubernetes okta ory_hydra spiffe zitadel",
    })  # fmt: skip
