"""Keys, key sets, key rings, signers, and which keys are trusted for which hosts."""

from a2a_trust.base.exports import TYPE_CHECKING, lazy

if TYPE_CHECKING:
    from a2a_trust.keys.files import KeyFileWarning as KeyFileWarning, PassphraseNeededError as PassphraseNeededError
    from a2a_trust.keys.files import load_private_key as load_private_key, save_private_key as save_private_key
    from a2a_trust.keys.jwk import KeySet as KeySet, PublicKey as PublicKey, private_key_to_jwk as private_key_to_jwk
    from a2a_trust.keys.jwk import public_key_from_jwk as public_key_from_jwk
    from a2a_trust.keys.jwk import public_key_from_pem as public_key_from_pem
    from a2a_trust.keys.jwk import publish_jwks as publish_jwks, read_jwks as read_jwks
    from a2a_trust.keys.trust.jwks_cache import JwksCache as JwksCache, JwksCacheTimes as JwksCacheTimes
    from a2a_trust.keys.trust.origins import OriginFromCard as OriginFromCard, Origins as Origins
    from a2a_trust.keys.trust.origins import UnsafeAnyOrigin as UnsafeAnyOrigin
    from a2a_trust.keys.trust.policy import Policy as Policy, all_of as all_of, n_of as n_of, named as named
    from a2a_trust.keys.ring_file import KeyRingFile as KeyRingFile, load_key_ring as load_key_ring
    from a2a_trust.keys.ring_file import save_key_ring as save_key_ring, update_key_ring as update_key_ring
    from a2a_trust.keys.rotation import KeyRing as KeyRing
    from a2a_trust.keys.signer import LocalSigner as LocalSigner, Signer as Signer, generate_signer as generate_signer
    from a2a_trust.keys.trust.store import SigningTool as SigningTool, TrustSource as TrustSource
    from a2a_trust.keys.trust.store import TrustStore as TrustStore, TrustedKey as TrustedKey
    from a2a_trust.keys.trust.file import TrustFile as TrustFile
else:
    __getattr__, __dir__ = lazy(__name__, {
        "keys.files": "KeyFileWarning PassphraseNeededError load_private_key save_private_key",
        "keys.jwk": "KeySet PublicKey private_key_to_jwk public_key_from_jwk public_key_from_pem publish_jwks "
        "read_jwks",
        "keys.trust.jwks_cache": "JwksCache JwksCacheTimes",
        "keys.trust.origins": "OriginFromCard Origins UnsafeAnyOrigin", "keys.trust.policy": "Policy all_of n_of named",
        "keys.ring_file": "KeyRingFile load_key_ring save_key_ring update_key_ring", "keys.rotation": "KeyRing",
        "keys.signer": "LocalSigner Signer generate_signer",
        "keys.trust.store": "SigningTool TrustSource TrustStore TrustedKey", "keys.trust.file": "TrustFile",
    })  # fmt: skip
